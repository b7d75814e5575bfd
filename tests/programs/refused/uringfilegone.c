/* An io_uring with a registered file that the program does not have open any more: what it was can't be told. */
#include "../uring.inc"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct ring ring = ring_make(4, 0, 0);
	int fd = (int)BUILD(open(conform_path("file"), O_RDWR | O_CREAT, 0600));
	BUILD(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_FILES, &fd, 1));
	BUILD(close(fd));
	conform_expect_refusal(getpid(), ring.fd);
	conform_ready();
	conform_wait();
	struct io_uring_sqe *request = ring_queue(&ring, IORING_OP_WRITE, 0, "abc", 3, 0, 1);
	request->flags = IOSQE_FIXED_FILE;
	ring_submit(&ring, 1);
	ring_expect(&ring, 1, 3);
	conform_pass();
}
