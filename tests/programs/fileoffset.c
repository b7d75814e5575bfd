/* Open files: offset, append, access mode, status flags, close-on-exec, numbers far apart. */
#include "conform.h"

/* What the kernel adds by itself on 64-bit machines; there the C library has 0 for it. */
#if defined __arm__ || defined __aarch64__
enum { LARGE_FILE = 0400000 };
#else
enum { LARGE_FILE = 0100000 };
#endif

static void expect_flags(const char *what, int fd, int status, int descriptor)
{
	EXPECT(what, fcntl(fd, F_GETFL) & ~LARGE_FILE, status);
	EXPECT(what, fcntl(fd, F_GETFD), descriptor);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	const char *path = conform_path("file");
	int rw = BUILD(open(path, O_RDWR | O_CREAT, 0600));
	conform_write_all(rw, "0123456789", 10);
	BUILD(lseek(rw, 3, SEEK_SET));
	int append = BUILD(open(path, O_WRONLY | O_APPEND | O_CLOEXEC));
	int reads = BUILD(open(path, O_RDONLY | O_NONBLOCK));
	int far = BUILD(fcntl(reads, F_DUPFD, 200));
	int synced = BUILD(open(path, O_WRONLY | O_SYNC));
	BUILD(lseek(synced, 1ll << 40, SEEK_SET));
	close(reads);
	BUILD(lseek(far, 7, SEEK_SET));
	conform_ready();
	conform_wait();
	EXPECT("offset", lseek(rw, 0, SEEK_CUR), 3);
	EXPECT("distant offset", lseek(synced, 0, SEEK_CUR), 1ll << 40);
	expect_flags("flags of a read-write file", rw, O_RDWR, 0);
	expect_flags("flags of an appending file", append, O_WRONLY | O_APPEND, FD_CLOEXEC);
	expect_flags("flags of a reading file", far, O_RDONLY | O_NONBLOCK, 0);
	expect_flags("flags of a synchronous file", synced, O_WRONLY | O_SYNC, 0);
	conform_expect_bytes("bytes at the offset", far, "789");
	EXPECT_ERROR("writing a file open for reading", write(far, "x", 1), EBADF);
	EXPECT_ERROR("descriptor that was closed", fcntl(reads, F_GETFD), EBADF);
	conform_write_all(append, "ABC", 3);
	conform_expect_bytes("the file", rw, "3456789ABC");
	conform_pass();
}
