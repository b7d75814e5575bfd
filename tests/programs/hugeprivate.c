/*
 * Huge pages of a memfd (MFD_HUGETLB) that are mapped privately: some that the process has changed, by zeros, too, some that show
 * the file, now and after it is written to; inherited by a child that has changed others. Root's also without the descriptor.
 */
#include "conform.h"

enum { HUGE_PAGE = 2 << 20, PAGES = 3 };
static unsigned char *own, *shared;

static void child(void *unused)
{
	(void)unused;
	conform_fill(own + HUGE_PAGE + 100, 4000, 41);
	conform_mark("written");
	conform_await("told");
	conform_verify("the child's own page", own + HUGE_PAGE + 100, 4000, 41);
	conform_verify("what the parent had written before", own + 50, 3000, 42);
	EXPECT("a byte that it zeroed", own[5000], 0);
}

static unsigned char *map(int fd, int pages, int flags)
{
	void *made = mmap(NULL, (size_t)pages * HUGE_PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (made == MAP_FAILED)
		conform_skip("this machine has no huge pages to give (vm.nr_overcommit_hugepages)");
	return made;
}

static int huge_memfd(const char *name, int pages)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_HUGETLB);
	if (fd < 0)
		conform_skip("this kernel has no memfd of huge pages");
	BUILD(ftruncate(fd, (off_t)pages * HUGE_PAGE));
	return fd;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	bool ordinary, root = geteuid() == 0;
	int fd = huge_memfd("private", PAGES);
	shared = map(fd, PAGES, MAP_SHARED);
	conform_fill(shared, (size_t)2 * HUGE_PAGE, 43);
	own = map(fd, PAGES, MAP_PRIVATE);
	conform_fill(own + 50, 3000, 42);
	memset(own + 4096, 0, 4096);
	unsigned char *reading = map(fd, PAGES, MAP_PRIVATE);
	EXPECT("a byte of the file", reading[HUGE_PAGE + 9], shared[HUGE_PAGE + 9]);
	BUILD(mprotect(reading, (size_t)PAGES * HUGE_PAGE, PROT_READ));
	int closed = huge_memfd("closed", 1);
	unsigned char *passing = map(closed, 1, MAP_SHARED);
	conform_fill(passing, 600, 44);
	BUILD(munmap(passing, HUGE_PAGE));
	unsigned char *kept = root ? map(closed, 1, MAP_PRIVATE) : NULL;
	if (root)
		BUILD(close(closed));
	pid_t pid = conform_spawn(child, NULL);
	conform_await("written");

	conform_ready();
	conform_wait();

	/* The test says so where the machine has had no huge ones to give: private memory then shows what the file had. */
	ordinary = access(conform_path("ordinary"), F_OK) == 0;
	conform_verify("what the process had written", own + 50, 3000, 42);
	EXPECT("a byte that it zeroed", own[5000], 0);
	EXPECT("a byte of a page of its own that shows the file's", own[HUGE_PAGE - 3], shared[HUGE_PAGE - 3]);
	EXPECT("a byte of a page of the file's", own[HUGE_PAGE + 200], shared[HUGE_PAGE + 200]);
	conform_verify("the file", shared, (size_t)2 * HUGE_PAGE, 43);
	EXPECT("a byte that nobody wrote", own[3 * HUGE_PAGE - 1], 0);
	EXPECT("read-only memory is written", conform_faults((volatile char *)reading, true), 1);
	conform_verify("the file, mapped to be read", reading, (size_t)2 * HUGE_PAGE, 43);
	if (!ordinary) {
		shared[HUGE_PAGE + 9] ^= 0xff;
		EXPECT("what is written to the file, where it shows", reading[HUGE_PAGE + 9], shared[HUGE_PAGE + 9]);
		struct stat stat;
		BUILD(fstat(fd, &stat));
		EXPECT("bytes of its pages", stat.st_blksize, HUGE_PAGE);
	}
	own[2 * HUGE_PAGE] = 1;
	EXPECT("the file, where only the process has written", shared[2 * HUGE_PAGE], 0);
	if (root)
		conform_verify("a memfd that nobody has open", kept, 600, 44);
	conform_mark("told");
	conform_join(pid);
	conform_pass();
}
