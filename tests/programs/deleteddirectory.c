/* Directories that are removed while open, with removed ones and removed files of theirs; also one that has its name again. */
#include "conform.h"
#include <dirent.h>

static void expect_removed(const char *what, int fd, mode_t mode)
{
	struct stat stat;
	char proc[64], link[4096];
	BUILD(fstat(fd, &stat));
	EXPECT(what, S_ISDIR(stat.st_mode), 1);
	EXPECT(what, stat.st_mode & 07777, mode);
	EXPECT(what, stat.st_nlink, 0);
	EXPECT_ERROR(what, openat(fd, "new", O_WRONLY | O_CREAT, 0600), ENOENT);
	EXPECT_ERROR(what, mkdirat(fd, "new", 0700), ENOENT);
	EXPECT_ERROR(what, openat(fd, "file", O_RDONLY), ENOENT);
	snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
	ssize_t length = BUILD(readlink(proc, link, sizeof link - 1));
	link[length] = 0;
	EXPECT(what, strstr(link, " (deleted)") != NULL, 1);
}

static int entries(int fd)
{
	int count = 0;
	DIR *directory = fdopendir(dup(fd));
	if (!directory)
		conform_fail("fdopendir: %s", strerror(errno));
	rewinddir(directory);
	while (readdir(directory))
		count++;
	closedir(directory);
	return count;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("outer"), 0750));
	BUILD(chmod(conform_path("outer"), 0750));
	BUILD(mkdir(conform_path("outer/inner"), 0710));
	int outer = (int)BUILD(open(conform_path("outer"), O_RDONLY | O_DIRECTORY));
	int inner = (int)BUILD(open(conform_path("outer/inner"), O_RDONLY | O_DIRECTORY));
	int place = (int)BUILD(open(conform_path("outer/inner"), O_PATH | O_DIRECTORY));
	int file = (int)BUILD(open(conform_path("outer/inner/file"), O_RDWR | O_CREAT, 0600));
	int other = (int)BUILD(open(conform_path("outer/other"), O_RDWR | O_CREAT, 0600));
	conform_write_all(file, "in the inner one", 16);
	conform_write_all(other, "in the outer one", 16);
	BUILD(unlink(conform_path("outer/inner/file")));
	BUILD(unlink(conform_path("outer/other")));
	BUILD(rmdir(conform_path("outer/inner")));
	BUILD(rmdir(conform_path("outer")));
	/* Another one has its name. */
	BUILD(mkdir(conform_path("again"), 0700));
	int again = (int)BUILD(open(conform_path("again"), O_RDONLY | O_DIRECTORY));
	int kept = (int)BUILD(open(conform_path("again/file"), O_RDWR | O_CREAT, 0600));
	conform_write_all(kept, "kept", 4);
	BUILD(unlink(conform_path("again/file")));
	BUILD(rmdir(conform_path("again")));
	BUILD(mkdir(conform_path("again"), 0700));
	close((int)BUILD(open(conform_path("again/new"), O_RDWR | O_CREAT, 0600)));
	conform_ready();
	conform_wait();
	expect_removed("outer directory", outer, 0750);
	expect_removed("inner directory", inner, 0710);
	expect_removed("O_PATH of the inner directory", place, 0710);
	expect_removed("directory whose name another one has", again, 0700);
	EXPECT("entries of a removed directory", entries(inner), 0);
	EXPECT("other directory of its name", access(conform_path("again/new"), F_OK), 0);
	EXPECT_ERROR("name of the removed one", access(conform_path("outer"), F_OK), ENOENT);
	EXPECT("offset", lseek(file, 0, SEEK_SET), 0);
	EXPECT("offset", lseek(other, 0, SEEK_SET), 0);
	EXPECT("offset", lseek(kept, 0, SEEK_SET), 0);
	conform_expect_bytes("file in the inner directory", file, "in the inner one");
	conform_expect_bytes("file in the outer directory", other, "in the outer one");
	conform_expect_bytes("file in the directory whose name another one has", kept, "kept");
	conform_pass();
}
