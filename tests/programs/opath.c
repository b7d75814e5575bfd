/* O_PATH descriptors: of a file, a directory and a symbolic link. */
#include "conform.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char target[64] = "", proc[64];
	BUILD(mkdir(conform_path("inside"), 0700));
	int made = BUILD(open(conform_path("inside/file"), O_WRONLY | O_CREAT, 0600));
	conform_write_all(made, "hello", 5);
	close(made);
	BUILD(symlink("nowhere", conform_path("link")));
	int file = BUILD(open(conform_path("inside/file"), O_PATH));
	int directory = BUILD(open(conform_path("inside"), O_PATH | O_DIRECTORY));
	int link = BUILD(open(conform_path("link"), O_PATH | O_NOFOLLOW));
	conform_ready();
	conform_wait();
	EXPECT_ERROR("reading through O_PATH", read(file, target, 1), EBADF);
	EXPECT("O_PATH", fcntl(file, F_GETFL) & O_PATH, O_PATH);
	BUILD(readlinkat(link, "", target, sizeof target - 1));
	EXPECT_TEXT("target of the link", target, "nowhere");
	snprintf(proc, sizeof proc, "/proc/self/fd/%d", file);
	conform_expect_bytes("file behind O_PATH", BUILD(open(proc, O_RDONLY)), "hello");
	conform_expect_bytes("file in the O_PATH directory", BUILD(openat(directory, "file", O_RDONLY)), "hello");
	conform_pass();
}
