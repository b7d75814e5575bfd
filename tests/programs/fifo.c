/* Named FIFOs: bytes waiting, ends in two processes, both ends in one descriptor, found again by name. */
#include "conform.h"

static void writer(void *unused)
{
	(void)unused;
	int fd = BUILD(open(conform_path("fifo"), O_WRONLY));
	conform_write_all(fd, "before ", 7);
	conform_mark("written");
	conform_wait();
	conform_write_all(fd, "after ", 6);
	close(fd);
	fd = BUILD(open(conform_path("fifo"), O_WRONLY));
	conform_write_all(fd, "again", 5);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkfifo(conform_path("fifo"), 0600));
	BUILD(mkfifo(conform_path("both"), 0600));
	int both = BUILD(open(conform_path("both"), O_RDWR | O_NONBLOCK));
	conform_write_all(both, "loop", 4);
	pid_t child = conform_spawn(writer, NULL);
	int fd = BUILD(open(conform_path("fifo"), O_RDONLY));
	conform_await("written");
	conform_ready();
	conform_wait();
	conform_expect_bytes("bytes from before", fd, "before ");
	conform_expect_bytes("bytes from after", fd, "after ");
	conform_join(child);
	conform_expect_bytes("bytes of a writer that opened it by name", fd, "again");
	conform_expect_eof("FIFO without writers", fd);
	conform_expect_bytes("bytes in a FIFO held at both ends", both, "loop");
	EXPECT_ERROR("empty FIFO", read(both, &child, 1), EAGAIN);
	conform_pass();
}
