/* POSIX shared memory under /dev/shm: open, mapped by two processes, and found again by its name. */
#include "conform.h"

enum { PAGE = CONFORM_PAGE, SIZE = 16 * PAGE };
static const char *name;

static void other(void *unused)
{
	(void)unused;
	int fd = BUILD(shm_open(name, O_RDWR, 0));
	char *map = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	close(fd);
	conform_mark("mapped");
	conform_wait();
	conform_verify("shared memory in the child", map, SIZE, 1);
	conform_fill(map, PAGE, 2);
	conform_mark("written");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char with_slash[256];
	snprintf(with_slash, sizeof with_slash, "/%s", conform_unique());
	name = with_slash;
	int fd = BUILD(shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600));
	BUILD(ftruncate(fd, SIZE));
	char *map = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	conform_fill(map, SIZE, 1);
	pid_t child = conform_spawn(other, NULL);
	conform_await("mapped");
	conform_ready();
	conform_wait();
	conform_await("written");
	conform_verify("what the child wrote", map, PAGE, 2);
	int again = shm_open(name, O_RDWR, 0);
	struct stat held, named;
	shm_unlink(name);
	BUILD(again);
	BUILD(fstat(fd, &held));
	BUILD(fstat(again, &named));
	EXPECT("file under the name", named.st_ino, held.st_ino);
	conform_join(child);
	conform_pass();
}
