/* A socket that listens for Multipath TCP, as those of Go do: with connections of TCP, and connections of both afterwards. */
#include "conform.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

static int number(int fd, int level, int option)
{
	int value = -77;
	socklen_t length = sizeof value;
	BUILD(getsockopt(fd, level, option, &value, &length));
	return value;
}

static void set(int fd, int level, int option, int value)
{
	BUILD(setsockopt(fd, level, option, &value, sizeof value));
}

/* Connects, and what is said on either side is heard on the other one; the accepted socket is of that protocol. */
static void talk(int listener, const struct sockaddr_in *at, int protocol)
{
	int client = (int)BUILD(socket(AF_INET, SOCK_STREAM, protocol));
	BUILD(connect(client, (struct sockaddr *)at, sizeof *at));
	int server = (int)BUILD(accept(listener, NULL, NULL));
	EXPECT("protocol of the accepted one", number(server, SOL_SOCKET, SO_PROTOCOL), protocol);
	conform_write_all(client, "to the server", 13);
	conform_expect_bytes("at the server", server, "to the server");
	conform_write_all(server, "to the client", 13);
	conform_expect_bytes("at the client", client, "to the client");
	BUILD(close(client));
	BUILD(close(server));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int listener = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
	if (listener < 0)
		conform_skip("this kernel has no Multipath TCP");
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, found;
	socklen_t length = sizeof at;
	BUILD(conform_bind(listener, (struct sockaddr *)&at, length));
	BUILD(getsockname(listener, (struct sockaddr *)&at, &length));
	set(listener, SOL_SOCKET, SO_KEEPALIVE, 1);
	set(listener, IPPROTO_TCP, TCP_NODELAY, 1);
	BUILD(listen(listener, 7));
	int client = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	BUILD(connect(client, (struct sockaddr *)&at, sizeof at));
	int server = (int)BUILD(accept(listener, NULL, NULL));
	EXPECT("protocol of an accepted one", number(server, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
	conform_write_all(client, "not read yet", 12);
	conform_ready();
	conform_wait();

	EXPECT("protocol", number(listener, SOL_SOCKET, SO_PROTOCOL), IPPROTO_MPTCP);
	EXPECT("it listens", number(listener, SOL_SOCKET, SO_ACCEPTCONN), 1);
	EXPECT("SO_KEEPALIVE", number(listener, SOL_SOCKET, SO_KEEPALIVE), 1);
	EXPECT("TCP_NODELAY", number(listener, IPPROTO_TCP, TCP_NODELAY), 1);
	struct tcp_info info;
	length = sizeof info;
	BUILD(getsockopt(listener, IPPROTO_TCP, TCP_INFO, &info, &length));
	EXPECT("backlog", info.tcpi_sacked, 7);
	length = sizeof found;
	BUILD(getsockname(listener, (struct sockaddr *)&found, &length));
	EXPECT("port", found.sin_port, at.sin_port);
	conform_expect_bytes("sent before", server, "not read yet");
	conform_write_all(server, "more", 4);
	conform_expect_bytes("sent afterwards", client, "more");
	talk(listener, &at, IPPROTO_TCP);
	talk(listener, &at, IPPROTO_MPTCP);
	conform_pass();
}
