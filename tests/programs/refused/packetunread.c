/*
 * A packet socket with a packet that nobody has read: it can't be put back.
 * conform: root
 */
#include "conform.h"
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = socket(AF_PACKET, SOCK_DGRAM, htons(0x88b5));
	if (fd < 0)
		conform_skip("this kernel or user has none");
	struct sockaddr_ll lo = { .sll_family = AF_PACKET, .sll_protocol = htons(0x88b5), .sll_halen = 6,
				  .sll_ifindex = (int)if_nametoindex("lo") };
	BUILD(sendto(fd, "packet", 6, 0, (struct sockaddr *)&lo, sizeof lo));
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	EXPECT("a packet", poll(&ready, 1, 5000), 1);
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	char got[16];
	EXPECT("bytes of the packet", recv(fd, got, sizeof got, MSG_DONTWAIT), 6);
	conform_pass();
}
