/* memfd: contents, size, offset, seals, and a mapping of it in another process. */
#include "conform.h"

enum { PAGE = CONFORM_PAGE, SIZE = 32 * PAGE };
static int fd;

static void other(void *unused)
{
	(void)unused;
	char *map = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	close(fd);
	conform_mark("mapped");
	conform_wait();
	conform_verify("child's mapping", map, SIZE, 1);
	conform_fill(map + PAGE, PAGE, 2);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	static char contents[SIZE];
	char name[256];
	fd = BUILD(memfd_create("conform", MFD_ALLOW_SEALING));
	conform_fill(contents, SIZE, 1);
	conform_write_all(fd, contents, SIZE);
	BUILD(lseek(fd, 1000, SEEK_SET));
	BUILD(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW));
	pid_t child = conform_spawn(other, NULL);
	conform_await("mapped");
	conform_ready();
	conform_wait();
	conform_join(child);
	struct stat status;
	BUILD(fstat(fd, &status));
	EXPECT("size", status.st_size, SIZE);
	EXPECT("offset", lseek(fd, 0, SEEK_CUR), 1000);
	EXPECT("seals", fcntl(fd, F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW);
	EXPECT_ERROR("a sealed memfd grows", ftruncate(fd, 2 * SIZE), EPERM);
	BUILD(pread(fd, contents, SIZE, 0));
	conform_verify("what the child wrote", contents + PAGE, PAGE, 2);
	ssize_t length = BUILD(readlink("/proc/self/fd/3", name, sizeof name - 1));
	name[length] = 0;
	if (fd == 3)
		EXPECT_TEXT("name", name, "/memfd:conform (deleted)");
	conform_pass();
}
