/*
 * Memory that processes have in common since a fork: a parent, children, and a grandchild, each of which has written to some pages,
 * given up others, and has its heap and protections as it likes. Each keeps its own, and what one writes nobody else sees.
 */
#include "conform.h"

enum { PAGE = CONFORM_PAGE, PAGES = 256, SIZE = PAGES * PAGE, HEAP = 64 * PAGE, PEOPLE = 4 };
static char *memory, *heap, *sparse;

static unsigned byte_of(int who, int page)
{
	for (; who > 0; who = who == 3 ? 2 : 0) {
		if ((page + who) % 17 == 0)
			return (unsigned)who;
		if ((page + who) % 17 == 1)
			return 0;
	}
	return 'p';
}

static void change(int who)
{
	for (int page = 0; page < PAGES; page++) {
		char *at = memory + (size_t)page * PAGE;
		if ((page + who) % 17 == 0)
			memset(at, who, PAGE);
		else if ((page + who) % 17 == 1)
			BUILD(madvise(at, PAGE, MADV_DONTNEED));
	}
	sparse[(size_t)who * 1000 * PAGE] = (char)who;
	char *more = sbrk(who * PAGE);
	if (more == (void *)-1)
		conform_fail("sbrk: %s", strerror(errno));
	memset(more, 'a' + who, (size_t)who * PAGE);
	BUILD(mprotect(memory + (size_t)who * PAGE, PAGE, PROT_READ));
}

static void check(int who)
{
	for (int page = 0; page < PAGES; page++)
		for (int at = 0; at < PAGE; at += PAGE / 2)
			EXPECT("byte of memory", (unsigned char)memory[page * PAGE + at], byte_of(who, page));
	for (int at = 0; at < HEAP; at += PAGE)
		EXPECT("byte of the heap", heap[at], 'h');
	for (int other = 1; other < PEOPLE; other++) {
		bool own = other == who || (who == 3 && other == 2);
		EXPECT("byte of a sparse area", sparse[(size_t)other * 1000 * PAGE], own ? other : 0);
	}
	if (who > 0) {
		EXPECT("page that may only be read faults", conform_faults(memory + (size_t)who * PAGE, true), 1);
		EXPECT("byte of the heap's end", ((char *)sbrk(0))[-1], 'a' + who);
	}
	EXPECT("page beside it faults", conform_faults(memory + (size_t)(PEOPLE + who) * PAGE, true), 0);
	/* It can be made larger only if it is still one mapping. */
	char *moved = mremap(sparse, 4096ul * PAGE, 4097ul * PAGE, MREMAP_MAYMOVE);
	if (moved == MAP_FAILED)
		conform_fail("mremap: %s", strerror(errno));
}

static void person(void *number)
{
	int who = (int)(intptr_t)number;
	char mark[16], others[16];
	change(who);
	pid_t child = who == 2 ? conform_spawn(person, (void *)(intptr_t)3) : 0;
	snprintf(mark, sizeof mark, "ready-%d", who);
	conform_mark(mark);
	conform_wait();
	/* Nobody checks before all have written. */
	memset(memory + (size_t)(100 + who) * PAGE, byte_of(who, 100 + who) ? 'w' : 0, 1);
	snprintf(mark, sizeof mark, "written-%d", who);
	conform_mark(mark);
	for (int other = 1; other < PEOPLE; other++) {
		snprintf(others, sizeof others, "written-%d", other);
		conform_await(others);
	}
	memset(memory + (size_t)(100 + who) * PAGE, (int)byte_of(who, 100 + who), 1);
	check(who);
	if (child)
		conform_join(child);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	memory = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	memset(memory, 'p', SIZE);
	heap = sbrk(HEAP);
	if (heap == (void *)-1)
		conform_fail("sbrk: %s", strerror(errno));
	memset(heap, 'h', HEAP);
	sparse = conform_map(4096ul * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	pid_t one = conform_spawn(person, (void *)(intptr_t)1);
	pid_t two = conform_spawn(person, (void *)(intptr_t)2);
	for (int who = 1; who < PEOPLE; who++) {
		char mark[16];
		snprintf(mark, sizeof mark, "ready-%d", who);
		conform_await(mark);
	}
	conform_ready();
	conform_wait();
	check(0);
	conform_join(one);
	conform_join(two);
	conform_pass();
}
