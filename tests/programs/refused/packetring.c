/*
 * A packet socket with a ring, which it shares with the kernel.
 * conform: root
 */
#include "conform.h"
#include <linux/if_packet.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = socket(AF_PACKET, SOCK_RAW, 0);
	if (fd < 0)
		conform_skip("this kernel or user has none");
	struct tpacket_req ring = { .tp_block_size = 1 << 16, .tp_block_nr = 2, .tp_frame_size = 2048,
				    .tp_frame_nr = 64 };
	BUILD(setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring));
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	EXPECT_ERROR("the ring is still there", setsockopt(fd, SOL_PACKET, PACKET_RX_RING, &ring, sizeof ring), EBUSY);
	conform_pass();
}
