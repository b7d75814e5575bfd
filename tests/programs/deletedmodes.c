/*
 * Modes of removed directories: ones that the umask forbids, and ones that keep everybody out, of descriptors and of
 * working directories.
 */
#include "conform.h"

static void expect_mode(const char *what, int fd, mode_t mode)
{
	struct stat stat;
	BUILD(fstat(fd, &stat));
	EXPECT(what, stat.st_nlink, 0);
	EXPECT(what, stat.st_mode & 07777, mode);
}

static int removed(const char *name, mode_t mode)
{
	BUILD(mkdir(conform_path(name), 0700));
	int fd = BUILD(open(conform_path(name), O_RDONLY | O_DIRECTORY));
	BUILD(fchmod(fd, mode));
	BUILD(rmdir(conform_path(name)));
	return fd;
}

static void inside(void *unused)
{
	(void)unused;
	BUILD(mkdir(conform_path("inside"), 0700));
	BUILD(chdir(conform_path("inside")));
	BUILD(chmod(conform_path("inside"), 0102));
	BUILD(rmdir(conform_path("inside")));
	conform_mark("inside-it");
	conform_await("go");
	struct stat found;
	BUILD(stat(".", &found));
	EXPECT("mode of a working directory", found.st_mode & 07777, 0102);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int all = removed("all", 01777), shut = removed("shut", 0), twice = removed("twice", 02);
	int again = BUILD(dup(twice));
	char *name = NULL;
	BUILD(asprintf(&name, "/proc/self/fd/%d", all));
	int other = BUILD(open(name, O_PATH));
	pid_t child = conform_spawn(inside, NULL);
	conform_await("inside-it");
	conform_ready();
	conform_wait();
	expect_mode("everybody's", all, 01777);
	expect_mode("everybody's, without the right to read", other, 01777);
	expect_mode("nobody's", shut, 0);
	expect_mode("others'", again, 02);
	conform_join(child);
	conform_pass();
}
