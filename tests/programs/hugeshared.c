/*
 * Huge pages that processes share: by fork (MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB) and by a memfd (MFD_HUGETLB), which is also
 * held without being mapped, sealed, and mapped from within.
 */
#include "conform.h"

enum { HUGE_PAGE = 2 << 20 };
static unsigned char *forked, *file_pages;

static void child(void *unused)
{
	(void)unused;
	conform_fill(forked + HUGE_PAGE, 7000, 31);
	conform_mark("written");
	conform_await("told");
	conform_verify("what the parent has written since", forked, 6000, 32);
	conform_verify("the file, seen by the child", file_pages, 5000, 33);
	conform_fill(file_pages + 5000, 5000, 34);
}

static int huge_memfd(const char *name, int pages)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	if (fd < 0)
		conform_skip("this kernel has no memfd of huge pages");
	BUILD(ftruncate(fd, (off_t)pages * HUGE_PAGE));
	return fd;
}

static unsigned char *map(int fd, int pages, off_t offset)
{
	int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB : MAP_SHARED;
	void *made = mmap(NULL, (size_t)pages * HUGE_PAGE, PROT_READ | PROT_WRITE, flags, fd, offset);
	if (made == MAP_FAILED)
		conform_skip("this machine has no huge pages to give (vm.nr_overcommit_hugepages)");
	return made;
}

static void expect_file(const char *what, int fd, off_t size, long page)
{
	struct stat stat;
	BUILD(fstat(fd, &stat));
	EXPECT(what, stat.st_size, size);
	EXPECT("bytes of its pages", stat.st_blksize, page);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	forked = map(-1, 2, 0);
	int fd = huge_memfd("shared", 3);
	unsigned char *second = map(fd, 1, HUGE_PAGE);
	file_pages = map(fd, 3, 0);
	conform_fill(file_pages, 5000, 33);
	conform_fill(second + 17, 300, 35);
	int held = huge_memfd("held", 1);
	unsigned char *passing = map(held, 1, 0);
	conform_fill(passing, 400, 36);
	BUILD(munmap(passing, HUGE_PAGE));
	int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	BUILD(fcntl(held, F_ADD_SEALS, seals));
	int empty = huge_memfd("empty", 0);
	pid_t pid = conform_spawn(child, NULL);
	conform_await("written");

	conform_ready();
	conform_wait();

	conform_verify("what the child had written", forked + HUGE_PAGE, 7000, 31);
	conform_fill(forked, 6000, 32);
	conform_verify("the file's beginning", file_pages, 5000, 33);
	conform_verify("its second page", second + 17, 300, 35);
	conform_verify("its second page, through all of it", file_pages + HUGE_PAGE + 17, 300, 35);
	EXPECT("a byte that nobody wrote", file_pages[3 * HUGE_PAGE - 1], 0);
	/* The test says so where the machine has had no huge ones to give. */
	long page = access(conform_path("ordinary"), F_OK) == 0 ? sysconf(_SC_PAGESIZE) : HUGE_PAGE;
	expect_file("size of the file", fd, 3 * HUGE_PAGE, page);
	expect_file("size of what is held", held, HUGE_PAGE, page);
	expect_file("size of an empty one", empty, 0, HUGE_PAGE);
	EXPECT("its seals", fcntl(held, F_GET_SEALS), seals);
	passing = map(held, 1, 0);
	conform_verify("what is held", passing, 400, 36);
	conform_mark("told");
	conform_join(pid);
	conform_verify("what the child has written to the file", file_pages + 5000, 5000, 34);
	BUILD(ftruncate(empty, HUGE_PAGE));
	map(empty, 1, 0)[7] = 1;
	conform_pass();
}
