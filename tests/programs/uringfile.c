/*
 * Files that are read and written by an io_uring before and after, by their descriptors, as registered files, and
 * with registered buffers, whose pages the kernel holds.
 */
#include "uring.inc"
#include <sys/uio.h>

enum { SIZE = 3 * CONFORM_PAGE };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct ring ring = ring_make(8, 0, 0);
	int fd = (int)BUILD(open(conform_path("file"), O_RDWR | O_CREAT | O_TRUNC, 0600));
	int other = (int)BUILD(open(conform_path("other one"), O_RDWR | O_CREAT | O_TRUNC, 0600));
	char *buffer = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1), small[100], back[100];
	int files[] = { fd, -1, other };
	struct iovec buffers[] = { { small, sizeof small }, { NULL, 0 }, { buffer, SIZE } };
	BUILD(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_FILES, files, 3));
	BUILD(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, buffers, 3));
	ring_do(&ring, IORING_OP_WRITE, fd, "before ", 7, 0, 7);
	conform_fill(buffer, SIZE, 7);
	conform_fill(small, sizeof small, 8);
	conform_ready();
	conform_wait();
	ring_do(&ring, IORING_OP_WRITE, fd, "after", 5, 7, 5);
	ring_do(&ring, IORING_OP_READ, fd, back, sizeof back, 0, 12);
	EXPECT("what was written", memcmp(back, "before after", 12), 0);
	/* Place 2 holds the other file, and the large buffer. */
	struct io_uring_sqe *request = ring_queue(&ring, IORING_OP_WRITE_FIXED, 2, buffer, SIZE, 0, 1);
	request->flags = IOSQE_FIXED_FILE;
	request->buf_index = 2;
	ring_submit(&ring, 1);
	ring_expect(&ring, 1, SIZE);
	EXPECT("length of the other file", lseek(other, 0, SEEK_END), SIZE);
	memset(buffer, 0, SIZE);
	EXPECT("reading the other file", pread(other, buffer, SIZE, 0), SIZE);
	conform_verify("what was written from a registered buffer", buffer, SIZE, 7);
	memset(buffer, 0, SIZE);
	request = ring_queue(&ring, IORING_OP_READ_FIXED, 2, buffer + CONFORM_PAGE, CONFORM_PAGE, CONFORM_PAGE, 2);
	request->flags = IOSQE_FIXED_FILE;
	request->buf_index = 2;
	ring_submit(&ring, 1);
	ring_expect(&ring, 2, CONFORM_PAGE);
	char expected[2 * CONFORM_PAGE];
	conform_fill(expected, sizeof expected, 7);
	EXPECT("what was read into it", memcmp(buffer + CONFORM_PAGE, expected + CONFORM_PAGE, CONFORM_PAGE), 0);
	conform_verify("the small one", small, sizeof small, 8);
	request = ring_queue(&ring, IORING_OP_WRITE, 1, "x", 1, 0, 3);
	request->flags = IOSQE_FIXED_FILE;
	ring_submit(&ring, 1);
	ring_expect(&ring, 3, -EBADF);
	conform_pass();
}
