/*
 * A raw socket with a packet that nobody has read: it can't be put back.
 * conform: root
 */
#include "conform.h"
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = socket(AF_INET, SOCK_RAW, 200);
	if (fd < 0 && errno == EPERM)
		conform_skip("raw sockets are forbidden here");
	BUILD(fd);
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	char got[64];
	BUILD(sendto(fd, "abc", 3, 0, (struct sockaddr *)&here, sizeof here));
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	EXPECT("a packet", poll(&ready, 1, 5000), 1);
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	EXPECT("bytes of the packet", recv(fd, got, sizeof got, MSG_DONTWAIT), 23);
	conform_pass();
}
