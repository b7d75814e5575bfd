/*
 * Files made without a name (O_TMPFILE) that have been given one: written through the descriptor, they are what is found by
 * their name. One in the folder in which it was made, one that has two names there.
 */
#include "conform.h"

static int make(const char *content, const char *name)
{
	char proc[64];
	int fd = open(conform_path("."), O_TMPFILE | O_RDWR, 0640);
	if (fd < 0)
		conform_skip("this file system has no O_TMPFILE");
	conform_write_all(fd, content, strlen(content));
	snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
	BUILD(linkat(AT_FDCWD, proc, AT_FDCWD, conform_path(name), AT_SYMLINK_FOLLOW));
	return fd;
}

static void expect_same(const char *what, int fd, const char *name, nlink_t names)
{
	struct stat open_one, found;
	BUILD(fstat(fd, &open_one));
	BUILD(stat(conform_path(name), &found));
	EXPECT(what, found.st_ino, open_one.st_ino);
	EXPECT(what, open_one.st_nlink, names);
	EXPECT(what, open_one.st_mode & 07777, 0640);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int one = make("one", "first"), two = make("two", "second");
	BUILD(link(conform_path("second"), conform_path("third")));
	conform_ready();
	conform_wait();
	expect_same("one", one, "first", 1);
	expect_same("two", two, "second", 2);
	expect_same("two by its other name", two, "third", 2);
	conform_write_all(one, " more", 5);
	conform_write_all(two, " more", 5);
	conform_expect_bytes("one", (int)BUILD(open(conform_path("first"), O_RDONLY)), "one more");
	conform_expect_bytes("two", (int)BUILD(open(conform_path("third"), O_RDONLY)), "two more");
	conform_pass();
}
