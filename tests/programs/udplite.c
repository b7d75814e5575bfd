/* UDP-Lite: ports of its own, coverage, datagrams not read, a shared port, and what is shut down. */
#include "conform.h"
#include <netinet/in.h>
#include <arpa/inet.h>
#include <sys/socket.h>

#ifndef IPPROTO_UDPLITE
#define IPPROTO_UDPLITE 136
#endif
enum { SENT_COVERAGE = 10, LEAST_COVERAGE = 11 }; /* include/net/udplite.h */

static int number(int fd, int level, int option)
{
	int value = -1;
	socklen_t length = sizeof value;
	BUILD(getsockopt(fd, level, option, &value, &length));
	return value;
}

static void set(int fd, int level, int option, int value)
{
	BUILD(setsockopt(fd, level, option, &value, sizeof value));
}

static int make(int family)
{
	int fd = socket(family, SOCK_DGRAM, IPPROTO_UDPLITE);
	if (fd < 0 && (errno == EPROTONOSUPPORT || errno == EAFNOSUPPORT))
		conform_skip("this kernel has no UDP-Lite");
	return (int)BUILD(fd);
}

static void sends(int from, int to, const struct sockaddr *at, socklen_t length, const char *text)
{
	char got[32];
	EXPECT("bytes sent", sendto(from, text, strlen(text), 0, at, length), strlen(text));
	EXPECT("bytes received", recv(to, got, sizeof got, 0), strlen(text));
	got[strlen(text)] = 0;
	EXPECT_TEXT("what", got, text);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int server = make(AF_INET), client = make(AF_INET), six = make(AF_INET6);
	int plain = (int)BUILD(socket(AF_INET, SOCK_DGRAM, 0));
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, found, peer;
	struct sockaddr_in6 at6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	socklen_t length = sizeof at;
	BUILD(conform_bind(plain, (struct sockaddr *)&at, sizeof at));
	BUILD(getsockname(plain, (struct sockaddr *)&at, &length));
	/* The same port, which is another protocol's. */
	BUILD(bind(server, (struct sockaddr *)&at, sizeof at));
	set(server, IPPROTO_UDPLITE, LEAST_COVERAGE, 12);
	set(client, IPPROTO_UDPLITE, SENT_COVERAGE, 20);
	BUILD(connect(client, (struct sockaddr *)&at, sizeof at));
	length = sizeof peer;
	BUILD(getsockname(client, (struct sockaddr *)&peer, &length));
	length = sizeof at6;
	BUILD(bind(six, (struct sockaddr *)&at6, sizeof at6));
	BUILD(getsockname(six, (struct sockaddr *)&at6, &length));
	BUILD(send(client, "first of them all", 17, 0));
	BUILD(send(client, "another", 7, 0));
	int shut = make(AF_INET);
	BUILD(connect(shut, (struct sockaddr *)&at, sizeof at));
	BUILD(shutdown(shut, SHUT_WR));
	signal(SIGPIPE, SIG_IGN);
	conform_ready();
	conform_wait();

	EXPECT("protocol", number(server, SOL_SOCKET, SO_PROTOCOL), IPPROTO_UDPLITE);
	EXPECT("protocol of the one beside it", number(plain, SOL_SOCKET, SO_PROTOCOL), IPPROTO_UDP);
	EXPECT("least coverage", number(server, IPPROTO_UDPLITE, LEAST_COVERAGE), 12);
	EXPECT("sent coverage", number(client, IPPROTO_UDPLITE, SENT_COVERAGE), 20);
	EXPECT("coverage that was not set", number(six, IPPROTO_UDPLITE, SENT_COVERAGE), 0);
	length = sizeof found;
	BUILD(getsockname(server, (struct sockaddr *)&found, &length));
	EXPECT("port", found.sin_port, at.sin_port);
	length = sizeof found;
	BUILD(getsockname(client, (struct sockaddr *)&found, &length));
	EXPECT("port of the client", found.sin_port, peer.sin_port);
	length = sizeof found;
	BUILD(getpeername(client, (struct sockaddr *)&found, &length));
	EXPECT("peer", found.sin_port, at.sin_port);
	char got[32];
	EXPECT("first datagram", recv(server, got, sizeof got, MSG_DONTWAIT), 17);
	EXPECT("its bytes", memcmp(got, "first of them all", 17), 0);
	EXPECT("second datagram", recv(server, got, sizeof got, MSG_DONTWAIT), 7);
	EXPECT_ERROR("no more", recv(server, got, sizeof got, MSG_DONTWAIT), EAGAIN);
	EXPECT_ERROR("shut for writing", send(shut, "x", 1, 0), EPIPE);
	sends(client, server, NULL, 0, "more than covered");
	sends(six, six, (struct sockaddr *)&at6, sizeof at6, "to itself");
	conform_pass();
}
