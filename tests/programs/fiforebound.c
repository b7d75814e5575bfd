/* FIFOs whose path is not theirs any more: unlinked and made again, twice; and taken by a file. */
#include "conform.h"

static int make(const char *name, const char *bytes, mode_t mode)
{
	BUILD(mkfifo(conform_path(name), 0600));
	BUILD(chmod(conform_path(name), mode));
	int fd = BUILD(open(conform_path(name), O_RDWR | O_NONBLOCK));
	conform_write_all(fd, bytes, strlen(bytes));
	return fd;
}

static void look(const char *what, int fd, const char *bytes, nlink_t links, mode_t mode)
{
	struct stat stat;
	char link[64], found[4096] = { 0 }, wanted[4096];
	BUILD(fstat(fd, &stat));
	EXPECT("links", stat.st_nlink, links);
	EXPECT("mode", stat.st_mode & 07777, mode);
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	BUILD(readlink(link, found, sizeof found - 1));
	snprintf(wanted, sizeof wanted, "%s%s", conform_path(what), links ? "" : " (deleted)");
	EXPECT_TEXT("its name in /proc", found, wanted);
	conform_expect_bytes(what, fd, bytes);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fds[3];
	const char *bytes[] = { "first", "second", "third" };
	for (int i = 0; i < 3; i++) {
		if (i > 0)
			BUILD(unlink(conform_path("fifo")));
		fds[i] = make("fifo", bytes[i], i ? 0600 : 0622);
	}
	int taken = make("file", "lost", 0606), idle = make("idle", "idle", 0600);
	BUILD(unlink(conform_path("file")));
	int file = BUILD(open(conform_path("file"), O_RDWR | O_CREAT | O_EXCL, 0600));
	conform_write_all(file, "mine", 4);
	close(file);
	/* Nobody has the second one open. */
	BUILD(unlink(conform_path("idle")));
	BUILD(mkfifo(conform_path("idle"), 0600));
	conform_ready();
	conform_wait();
	for (int i = 0; i < 3; i++)
		look("fifo", fds[i], bytes[i], i == 2, i ? 0600 : 0622);
	look("file", taken, "lost", 0, 0606);
	look("idle", idle, "idle", 0, 0600);
	char found[8];
	EXPECT("length of the file", conform_read_file(conform_path("file"), found, sizeof found), 4);
	EXPECT_TEXT("content of the file", found, "mine");
	struct stat one, other;
	BUILD(fstat(fds[2], &one));
	BUILD(stat(conform_path("fifo"), &other));
	EXPECT("FIFO at the path", one.st_ino, other.st_ino);
	int reader = BUILD(open(conform_path("idle"), O_RDONLY | O_NONBLOCK));
	EXPECT("bytes of the FIFO that is at the path now", read(reader, found, 1), 0);
	conform_pass();
}
