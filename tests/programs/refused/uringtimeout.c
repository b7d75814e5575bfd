/* An io_uring with a timeout in flight. */
#include "../uring.inc"
#include <linux/time_types.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct ring ring = ring_make(4, 0, 0);
	struct __kernel_timespec time = { .tv_sec = 3600 };
	ring_queue(&ring, IORING_OP_TIMEOUT, -1, &time, 1, 0, 1);
	ring_submit(&ring, 0);
	conform_expect_refusal(getpid(), ring.fd);
	conform_ready();
	conform_wait();
	EXPECT("nothing is done", ring_unread(&ring), 0);
	ring_queue(&ring, IORING_OP_TIMEOUT_REMOVE, -1, (void *)1, 0, 0, 2);
	ring_submit(&ring, 2);
	EXPECT("timeout and its removal", ring_unread(&ring), 2);
	conform_pass();
}
