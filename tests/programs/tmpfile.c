/* Files made without a name (O_TMPFILE), which can be given one afterwards, and a deleted file, which can not. */
#include "conform.h"

static void give_name(const char *what, int fd, const char *name, int error)
{
	char proc[64];
	snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
	if (error)
		EXPECT_ERROR(what, linkat(AT_FDCWD, proc, AT_FDCWD, conform_path(name), AT_SYMLINK_FOLLOW), error);
	else
		EXPECT(what, linkat(AT_FDCWD, proc, AT_FDCWD, conform_path(name), AT_SYMLINK_FOLLOW), 0);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int plain = open(conform_path("."), O_TMPFILE | O_RDWR, 0640);
	if (plain < 0)
		conform_skip("this file system has no O_TMPFILE");
	int shut = (int)BUILD(open(conform_path("."), O_TMPFILE | O_EXCL | O_RDWR, 0600));
	int writing = (int)BUILD(open(conform_path("."), O_TMPFILE | O_WRONLY | O_APPEND, 0600));
	int deleted = (int)BUILD(open(conform_path("deleted"), O_RDWR | O_CREAT, 0600));
	int both = (int)BUILD(open(conform_path("."), O_TMPFILE | O_RDWR, 0600));
	conform_write_all(plain, "plain", 5);
	conform_write_all(shut, "shut", 4);
	conform_write_all(writing, "writ", 4);
	conform_write_all(deleted, "gone", 4);
	BUILD(unlink(conform_path("deleted")));
	/* Named and deleted again: it can't come back. */
	give_name("before", both, "both", 0);
	BUILD(unlink(conform_path("both")));
	int flags = (int)BUILD(fcntl(plain, F_GETFL));
	conform_ready();
	conform_wait();
	struct stat stat;
	BUILD(fstat(plain, &stat));
	EXPECT("names", stat.st_nlink, 0);
	EXPECT("mode", stat.st_mode & 07777, 0640);
	EXPECT("size", stat.st_size, 5);
	EXPECT("offset", lseek(plain, 0, SEEK_CUR), 5);
	EXPECT("flags", fcntl(plain, F_GETFL) & ~(O_TMPFILE), flags & ~(O_TMPFILE));
	conform_write_all(writing, "ing", 3);
	give_name("O_TMPFILE", plain, "plain", 0);
	give_name("O_TMPFILE for writing", writing, "writing", 0);
	give_name("a deleted file", deleted, "deleted", ENOENT);
	BUILD(fstat(plain, &stat));
	EXPECT("names", stat.st_nlink, 1);
	conform_expect_bytes("by its name", (int)BUILD(open(conform_path("plain"), O_RDONLY)), "plain");
	conform_expect_bytes("by its name", (int)BUILD(open(conform_path("writing"), O_RDONLY)), "writing");
	EXPECT("offset", lseek(shut, 0, SEEK_SET), 0);
	conform_expect_bytes("without a name", shut, "shut");
	conform_pass();
}
