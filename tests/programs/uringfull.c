/*
 * Completions that are not read yet fill an io_uring of a size of its own up to one place, and lie around its end:
 * what comes next may not overwrite them. One more than fits is kept aside by the kernel.
 */
#include "uring.inc"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct ring ring = ring_make(2, 16, 0);
	EXPECT("places for completions", ring.completions, 16);
	ring_idle(&ring, 11);
	for (unsigned i = 0; i < 15; i++) {
		ring_queue(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 500 + i);
		ring_submit(&ring, 0);
	}
	conform_ready();
	conform_wait();
	EXPECT("completions to read", ring_unread(&ring), 15);
	ring_queue(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 515);
	ring_queue(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 516);
	ring_submit(&ring, 0);
	EXPECT("completions to read", ring_unread(&ring), 16);
	EXPECT("some are kept aside", (ring_get(ring.state) & IORING_SQ_CQ_OVERFLOW) != 0, 1);
	for (unsigned i = 0; i < 16; i++)
		ring_expect(&ring, 500 + i, 0);
	ring_submit(&ring, 1);
	ring_expect(&ring, 516, 0);
	ring_idle(&ring, 20);
	conform_pass();
}
