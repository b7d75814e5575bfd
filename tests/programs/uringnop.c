/*
 * An io_uring at rest: completions that are not read yet, requests that are queued and not handed over, and places in
 * the rings that have gone round several times. The program's copies of these places must go on to fit.
 */
#include "uring.inc"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct ring ring = ring_make(4, 0, 0), fresh = ring_make(1, 0, 0);
	ring_idle(&ring, 1003);
	for (int i = 0; i < 6; i++) {
		if (i == 4)
			ring_submit(&ring, 0);
		ring_queue(&ring, IORING_OP_NOP, -1, NULL, 0, 0, (uint64_t)(70 + i));
	}
	ring_submit(&ring, 0);
	EXPECT("completions to read", ring_unread(&ring), 6);
	for (int i = 0; i < 3; i++)
		ring_queue(&ring, IORING_OP_NOP, -1, NULL, 0, 0, (uint64_t)(90 + i));
	conform_ready();
	conform_wait();
	EXPECT("requests taken", ring_get(ring.head), 1009);
	EXPECT("requests queued", ring_get(ring.tail), 1012);
	EXPECT("completions to read", ring_unread(&ring), 6);
	for (int i = 0; i < 6; i++)
		ring_expect(&ring, (uint64_t)(70 + i), 0);
	ring_submit(&ring, 3);
	for (int i = 0; i < 3; i++)
		ring_expect(&ring, (uint64_t)(90 + i), 0);
	ring_idle(&ring, 50);
	ring_idle(&fresh, 5);
	EXPECT("requests taken", ring_get(ring.head), 1062);
	conform_pass();
}
