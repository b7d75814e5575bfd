/* A TCP connection whose first packet is kept (TCP_SAVE_SYN) and not read yet. */
#include "conform.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof own;
	int yes = 1;
	char packet[256];
	conform_start(argc, argv);
	int listener = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0)), client = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	BUILD(setsockopt(listener, IPPROTO_TCP, TCP_SAVE_SYN, &yes, sizeof yes));
	BUILD(conform_bind(listener, (struct sockaddr *)&own, sizeof own));
	BUILD(listen(listener, 4));
	BUILD(getsockname(listener, (struct sockaddr *)&own, &length));
	BUILD(connect(client, (struct sockaddr *)&own, length));
	int accepted = (int)BUILD(accept(listener, NULL, NULL));
	conform_expect_refusal(getpid(), accepted);
	conform_ready();
	conform_wait();
	length = sizeof packet;
	BUILD(getsockopt(accepted, IPPROTO_TCP, TCP_SAVED_SYN, packet, &length));
	EXPECT_BETWEEN("length of the first packet", length, 40, 256);
	conform_pass();
}
