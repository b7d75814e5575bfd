/* A file mapped shared by two processes: what one writes the other sees, and the file has it. */
#include "conform.h"

enum { PAGE = CONFORM_PAGE, SIZE = 64 * PAGE };

static void other(void *unused)
{
	(void)unused;
	int fd = BUILD(open(conform_path("file"), O_RDWR));
	char *map = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	close(fd);
	conform_mark("mapped");
	conform_wait();
	conform_verify("the other's view", map, SIZE, 1);
	conform_fill(map + PAGE, PAGE, 2);
	conform_mark("written");
	conform_await("checked");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	static char found[SIZE];
	int fd = BUILD(open(conform_path("file"), O_RDWR | O_CREAT, 0600));
	BUILD(ftruncate(fd, SIZE));
	char *map = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	conform_fill(map, SIZE, 1);
	pid_t child = conform_spawn(other, NULL);
	conform_await("mapped");
	conform_ready();
	conform_wait();
	conform_await("written");
	conform_verify("what the other wrote", map + PAGE, PAGE, 2);
	conform_fill(map + 2 * PAGE, PAGE, 3);
	BUILD(pread(fd, found, SIZE, 0));
	conform_verify("the file, written by the other", found + PAGE, PAGE, 2);
	conform_verify("the file, written here", found + 2 * PAGE, PAGE, 3);
	conform_mark("checked");
	conform_join(child);
	conform_pass();
}
