/*
 * Memory that the kernel gives huge pages to because the program has advised it (MADV_HUGEPAGE): it has them after a restart,
 * too, where such are to be had; and memory that it has advised against (MADV_NOHUGEPAGE), which has none.
 */
#include "conform.h"

enum { HUGE_PAGE = 2 << 20, PAGES = 8, SIZE = PAGES * HUGE_PAGE };

/* How much of the memory at an address is in huge pages, in KiB. */
static long in_huge_pages(const void *memory)
{
	static char text[1 << 20];
	int fd = open("/proc/self/smaps", O_RDONLY);
	BUILD(fd);
	size_t length = 0;
	ssize_t count;
	while ((count = read(fd, text + length, sizeof text - 1 - length)) > 0)
		length += (size_t)count;
	text[length] = 0;
	BUILD(close(fd));
	char head[40];
	snprintf(head, sizeof head, "%lx-", (unsigned long)memory);
	const char *found = strstr(text, head);
	const char *told = found ? strstr(found, "AnonHugePages:") : NULL;
	return told ? strtol(told + strlen("AnonHugePages:"), NULL, 10) : -1;
}

/* A mapping of its own, at the beginning of a huge page. */
static unsigned char *advised(int advice)
{
	unsigned char *all = mmap(NULL, SIZE + 2 * HUGE_PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED)
		conform_fail("mmap: %s", strerror(errno));
	unsigned char *first = (unsigned char *)(((uintptr_t)all + HUGE_PAGE) & ~((uintptr_t)HUGE_PAGE - 1));
	BUILD(mprotect(first, SIZE, PROT_READ | PROT_WRITE));
	if (madvise(first, SIZE, advice) != 0)
		conform_skip("this kernel has no transparent huge pages");
	return first;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	unsigned char *large = advised(MADV_HUGEPAGE), *small = advised(MADV_NOHUGEPAGE);
	conform_fill(large, SIZE - 9000, 51);
	conform_fill(small, SIZE, 52);
	if (in_huge_pages(large) < SIZE / 1024)
		conform_skip("this machine has no transparent huge pages to give");
	EXPECT("huge pages of memory that is to have none", in_huge_pages(small), 0);

	conform_ready();
	conform_wait();

	conform_verify("memory of huge pages", large, SIZE - 9000, 51);
	EXPECT("what was never written", large[SIZE - 1], 0);
	conform_verify("memory of ordinary pages", small, SIZE, 52);
	EXPECT("huge pages of memory that is to have none, later", in_huge_pages(small), 0);
	/* The machine may have none left by now. */
	unsigned char *fresh = advised(MADV_HUGEPAGE);
	memset(fresh, 1, SIZE);
	if (in_huge_pages(fresh) == SIZE / 1024)
		EXPECT_BETWEEN("KiB in huge pages", in_huge_pages(large), SIZE / 1024 / 2, SIZE / 1024);
	conform_pass();
}
