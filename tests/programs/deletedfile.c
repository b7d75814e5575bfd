/* Deleted files: one open, one mapped private, one mapped shared by two processes, one never named. */
#include "conform.h"

enum { PAGE = CONFORM_PAGE, SIZE = 16 * PAGE };
static char *shared;

static int make(const char *name, unsigned seed)
{
	static char contents[SIZE];
	int fd = BUILD(open(conform_path(name), O_RDWR | O_CREAT | O_EXCL, 0640));
	conform_fill(contents, SIZE, seed);
	conform_write_all(fd, contents, SIZE);
	BUILD(unlink(conform_path(name)));
	return fd;
}

static void other(void *unused)
{
	(void)unused;
	conform_mark("born");
	conform_wait();
	conform_verify("deleted file mapped shared, in the child", shared, PAGE, 2);
	conform_fill(shared + PAGE, PAGE, 9);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	static char contents[SIZE];
	int opened = make("opened", 1), fd = make("shared", 2);
	shared = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	close(fd);
	fd = make("private", 3);
	char *private = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd);
	close(fd);
	conform_fill(private, PAGE, 4);
	BUILD(lseek(opened, 1234, SEEK_SET));
	int holed = make("holed", 5);
	BUILD(ftruncate(holed, 0));
	BUILD(pwrite(holed, "a", 1, 0));
	BUILD(pwrite(holed, "b", 1, 8 * PAGE));
	struct timespec times[2] = { { 1000000000, 1000 }, { 1100000000, 2000 } };
	BUILD(futimens(holed, times));
	off_t hole = BUILD(lseek(holed, 0, SEEK_HOLE)), data = BUILD(lseek(holed, PAGE, SEEK_DATA));
	pid_t child = conform_spawn(other, NULL);
	conform_await("born");
	conform_ready();
	conform_wait();
	conform_join(child);
	struct stat status;
	BUILD(fstat(opened, &status));
	EXPECT("links of a deleted file", status.st_nlink, 0);
	EXPECT("mode of a deleted file", status.st_mode & 0777, 0640);
	EXPECT("offset in a deleted file", lseek(opened, 0, SEEK_CUR), 1234);
	BUILD(pread(opened, contents, SIZE, 0));
	conform_verify("deleted file", contents, SIZE, 1);
	EXPECT("hole in a deleted file", lseek(holed, 0, SEEK_HOLE), hole);
	EXPECT("end of the hole in a deleted file", lseek(holed, PAGE, SEEK_DATA), data);
	BUILD(fstat(holed, &status));
	EXPECT("modification time of a deleted file", status.st_mtim.tv_sec, 1100000000);
	EXPECT("its nanoseconds", status.st_mtim.tv_nsec, 2000);
	EXPECT("a deleted file has come back", access(conform_path("opened"), F_OK), -1);
	conform_verify("deleted file mapped shared", shared, PAGE, 2);
	conform_verify("what the child wrote to it", shared + PAGE, PAGE, 9);
	conform_verify("deleted file mapped private, written page", private, PAGE, 4);
	conform_fill(contents, SIZE, 3);
	EXPECT("deleted file mapped private, clean page", memcmp(private + PAGE, contents + PAGE, PAGE), 0);
	conform_pass();
}
