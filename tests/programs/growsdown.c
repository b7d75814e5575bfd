/* A mapping that grows down has kept what it grew to, and still grows; so does the main stack. */
#include "conform.h"
#include <alloca.h>

enum { PAGE = CONFORM_PAGE, ROOM = 16 << 20, START = 16 * PAGE, GROWTH = 200 * PAGE };

static void __attribute__((noinline)) use_stack(size_t size)
{
	volatile char *memory = alloca(size);
	for (size_t at = 0; at < size; at += PAGE)
		memory[size - 1 - at] = 1;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char *room = conform_map(ROOM, PROT_NONE, MAP_PRIVATE, -1);
	BUILD(munmap(room, ROOM));
	char *top = room + ROOM;
	char *map = mmap(top - START, START, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED_NOREPLACE, -1, 0);
	if (map == MAP_FAILED)
		conform_fail("mmap: %s", strerror(errno));
	/* Touched page by page from above: that is how a stack grows. */
	for (size_t below = PAGE; below <= START + GROWTH; below += PAGE)
		conform_fill(top - below, PAGE, (unsigned)below);
	use_stack(1 << 20);
	conform_ready();
	conform_wait();
	for (size_t below = PAGE; below <= START + GROWTH; below += PAGE)
		conform_verify("what it had grown to", top - below, PAGE, (unsigned)below);
	for (size_t below = START + GROWTH + PAGE; below <= START + 2 * GROWTH; below += PAGE)
		EXPECT("growing on faults", conform_faults(top - below, true), 0);
	use_stack(6 << 20);
	conform_pass();
}
