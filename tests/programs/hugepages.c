/*
 * Private memory of huge pages (MAP_HUGETLB): written in part, read only, closed to everybody, without a reservation, inherited
 * by a child that has written to it since. Where a machine lacks such pages at the restart, ordinary ones take their place.
 */
#include "conform.h"

enum { HUGE_PAGE = 2 << 20, PAGES = 4 };
static unsigned char *written, *read_only, *closed, *inherited;

static void child(void *unused)
{
	(void)unused;
	/* A page of its own from now on, the others as its parent had them. */
	conform_fill(inherited + HUGE_PAGE, 5000, 21);
	conform_mark("written");
	conform_await("checked");
	conform_verify("the child's own page", inherited + HUGE_PAGE, 5000, 21);
	conform_verify("the page that was inherited", inherited, 9000, 22);
	EXPECT("a byte that nobody wrote", inherited[HUGE_PAGE - 1], 0);
	inherited[0]++;
}

static unsigned char *huge(int pages, int flags)
{
	flags |= MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
	void *made = mmap(NULL, (size_t)pages * HUGE_PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (made == MAP_FAILED)
		conform_skip("this machine has no huge pages to give (vm.nr_overcommit_hugepages)");
	return made;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	written = huge(PAGES, 0);
	conform_fill(written, HUGE_PAGE, 11);
	conform_fill(written + 3 * HUGE_PAGE - 100, 200, 12);
	read_only = huge(1, 0);
	conform_fill(read_only + 4096, 4096, 13);
	BUILD(mprotect(read_only, HUGE_PAGE, PROT_READ));
	closed = huge(1, 0);
	conform_fill(closed, 100, 14);
	BUILD(mprotect(closed, HUGE_PAGE, PROT_NONE));
	unsigned char *unreserved = huge(2, MAP_NORESERVE);
	conform_fill(unreserved + HUGE_PAGE, HUGE_PAGE, 15);
	inherited = huge(2, 0);
	conform_fill(inherited, 9000, 22);
	pid_t pid = conform_spawn(child, NULL);
	conform_await("written");

	conform_ready();
	conform_wait();

	conform_verify("the first page", written, HUGE_PAGE, 11);
	EXPECT("a byte of a page that nobody wrote", written[2 * HUGE_PAGE - 1], 0);
	conform_verify("what lies across two pages", written + 3 * HUGE_PAGE - 100, 200, 12);
	conform_fill(written + HUGE_PAGE, HUGE_PAGE, 16);
	conform_verify("what is written now", written + HUGE_PAGE, HUGE_PAGE, 16);
	EXPECT("read-only memory is written", conform_faults((volatile char *)read_only, true), 1);
	conform_verify("read-only memory", read_only + 4096, 4096, 13);
	EXPECT("closed memory is read", conform_faults((volatile char *)closed, false), 1);
	BUILD(mprotect(closed, HUGE_PAGE, PROT_READ));
	conform_verify("closed memory", closed, 100, 14);
	conform_verify("memory without a reservation", unreserved + HUGE_PAGE, HUGE_PAGE, 15);
	EXPECT("the child's page, seen by its parent", inherited[HUGE_PAGE], 0);
	conform_mark("checked");
	conform_join(pid);
	conform_verify("what the child does not share any more", inherited, 9000, 22);
	BUILD(munmap(written, PAGES * HUGE_PAGE));
	conform_pass();
}
