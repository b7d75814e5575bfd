/*
 * A table of registered files with free places, that is made empty and filled later: one file in two places, a second one, and a
 * FIFO; a place is filled and another one emptied after the restart.
 */
#include "uring.inc"

#ifndef IORING_RSRC_REGISTER_SPARSE
#define IORING_RSRC_REGISTER_SPARSE (1U << 0)
#endif

enum { PLACES = 64 };

static void update(struct ring *ring, unsigned place, int fd)
{
	struct io_uring_files_update change = {.offset = place, .fds = (uintptr_t)&fd};
	EXPECT("places that change", syscall(SYS_io_uring_register, ring->fd, IORING_REGISTER_FILES_UPDATE, &change, 1), 1);
}

static void write_at(struct ring *ring, int place, const char *text, int offset, unsigned long name, int expected)
{
	struct io_uring_sqe *request =
		ring_queue(ring, IORING_OP_WRITE, place, (void *)text, strlen(text), offset, name);
	request->flags = IOSQE_FIXED_FILE;
	ring_submit(ring, 1);
	ring_expect(ring, name, expected);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct ring ring = ring_make(8, 0, 0);
	struct io_uring_rsrc_register table = {.nr = PLACES, .flags = IORING_RSRC_REGISTER_SPARSE};
	if (syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_FILES2, &table, sizeof table) != 0)
		conform_skip("this kernel has no sparse tables");
	int one = (int)BUILD(open(conform_path("one"), O_RDWR | O_CREAT | O_TRUNC, 0600));
	int two = (int)BUILD(open(conform_path("two"), O_RDWR | O_CREAT | O_TRUNC, 0600));
	BUILD(mkfifo(conform_path("fifo"), 0600));
	int fifo = (int)BUILD(open(conform_path("fifo"), O_RDWR | O_NONBLOCK));
	update(&ring, 3, one);
	update(&ring, 63, two);
	update(&ring, 40, one);
	update(&ring, 41, fifo);
	write_at(&ring, 40, "before", 0, 1, 6);
	conform_ready();
	conform_wait();
	write_at(&ring, 3, " three", 6, 2, 6);
	write_at(&ring, 63, "second", 0, 3, 6);
	write_at(&ring, 41, "into", 0, 4, 4);
	write_at(&ring, 5, "none", 0, 5, -EBADF);
	char back[32] = "";
	EXPECT("bytes of the first", pread(one, back, sizeof back, 0), 12);
	EXPECT_TEXT("what they are", back, "before three");
	memset(back, 0, sizeof back);
	EXPECT("bytes of the second", pread(two, back, sizeof back, 0), 6);
	EXPECT_TEXT("what they are", back, "second");
	conform_expect_bytes("what went through the FIFO", fifo, "into");
	update(&ring, 5, two);
	update(&ring, 3, -1);
	write_at(&ring, 5, "SECOND", 0, 6, 6);
	write_at(&ring, 3, "gone", 0, 7, -EBADF);
	conform_pass();
}
