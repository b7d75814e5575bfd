/* A Multipath TCP connection. */
#include "conform.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int listener = socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP);
	if (listener < 0)
		conform_skip("this kernel has no Multipath TCP");
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof at;
	BUILD(conform_bind(listener, (struct sockaddr *)&at, length));
	BUILD(getsockname(listener, (struct sockaddr *)&at, &length));
	BUILD(listen(listener, 4));
	int client = (int)BUILD(socket(AF_INET, SOCK_STREAM, IPPROTO_MPTCP));
	BUILD(connect(client, (struct sockaddr *)&at, sizeof at));
	int server = (int)BUILD(accept(listener, NULL, NULL));
	conform_write_all(client, "before", 6);
	conform_expect_bytes("sent before", server, "before");
	conform_expect_refusal(getpid(), client);
	conform_ready();
	conform_wait();
	conform_write_all(client, "after", 5);
	conform_expect_bytes("sent afterwards", server, "after");
	conform_pass();
}
