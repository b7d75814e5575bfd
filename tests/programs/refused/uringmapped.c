/*
 * Memory of an io_uring without a descriptor of it: the ring still serves whoever has registered it
 * (IORING_REGISTER_RING_FDS).
 */
#include "../uring.inc"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct ring ring = ring_make(4, 0, 0);
	struct io_uring_rsrc_update update = { .offset = -1U, .data = (uint64_t)ring.fd };
	if (syscall(SYS_io_uring_register, ring.fd, 20, &update, 1) != 1)
		conform_skip("this kernel registers no rings");
	BUILD(close(ring.fd));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	ring_queue(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 7);
	unsigned flags = IORING_ENTER_GETEVENTS | 1U << 4;
	EXPECT("requests taken", syscall(SYS_io_uring_enter, update.offset, 1, 1, flags, NULL, 0), 1);
	ring_expect(&ring, 7, 0);
	conform_pass();
}
