/* An io_uring whose requests a thread of the kernel's takes (IORING_SETUP_SQPOLL), under two numbers. */
#include "uring.inc"

static void wait_for(struct ring *ring, unsigned count)
{
	while (ring_unread(ring) < count)
		conform_sleep_ms(1);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct ring ring = ring_make(4, 0, IORING_SETUP_SQPOLL);
	int fd = (int)BUILD(open(conform_path("file"), O_RDWR | O_CREAT | O_TRUNC, 0600));
	int copy = (int)BUILD(fcntl(ring.fd, F_DUPFD_CLOEXEC, 40));
	BUILD(fcntl(ring.fd, F_SETFD, 0));
	for (unsigned i = 0; i < 9; i++) {
		ring_queue(&ring, IORING_OP_WRITE, fd, "abcdefghi" + i, 1, i, i);
		ring_submit(&ring, 0);
		wait_for(&ring, 1);
		ring_expect(&ring, i, 1);
	}
	ring_queue(&ring, IORING_OP_NOP, -1, NULL, 0, 0, 77);
	ring_submit(&ring, 0);
	wait_for(&ring, 1);
	conform_ready();
	conform_wait();
	ring_expect(&ring, 77, 0);
	EXPECT("close-on-exec", fcntl(copy, F_GETFD), FD_CLOEXEC);
	EXPECT("the other number", fcntl(ring.fd, F_GETFD), 0);
	BUILD(close(ring.fd));
	ring.fd = copy;
	for (unsigned i = 0; i < 9; i++) {
		ring_queue(&ring, IORING_OP_WRITE, fd, "ABCDEFGHI" + i, 1, i + 9, i);
		ring_submit(&ring, 0);
		wait_for(&ring, 1);
		ring_expect(&ring, i, 1);
	}
	char back[20];
	EXPECT("length of the file", pread(fd, back, sizeof back, 0), 18);
	EXPECT("what was written", memcmp(back, "abcdefghiABCDEFGHI", 18), 0);
	conform_pass();
}
