/* Shared anonymous memory stays shared, between parent, child and two mappings of one piece. */
#include "conform.h"

enum { PAGE = CONFORM_PAGE, SIZE = 2 << 20 };
static char *memory;

static void other(void *unused)
{
	(void)unused;
	conform_fill(memory + SIZE / 2, PAGE, 5);
	/* An own view of the same memory at another address. */
	char *moved = mremap(memory, 0, SIZE, MREMAP_MAYMOVE);
	if (moved == MAP_FAILED)
		conform_fail("mremap: %s", strerror(errno));
	conform_mark("mapped");
	conform_wait();
	conform_verify("second view", moved, PAGE, 1);
	conform_verify("second view, own half", moved + SIZE / 2, PAGE, 5);
	conform_fill(moved + PAGE, PAGE, 2);
	conform_verify("first view of what the second wrote", memory + PAGE, PAGE, 2);
	conform_mark("written");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	memory = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, -1);
	conform_fill(memory, PAGE, 1);
	pid_t child = conform_spawn(other, NULL);
	conform_await("mapped");
	conform_ready();
	conform_wait();
	conform_await("written");
	conform_verify("own page", memory, PAGE, 1);
	conform_verify("child's page from before", memory + SIZE / 2, PAGE, 5);
	conform_verify("child's page", memory + PAGE, PAGE, 2);
	EXPECT("page that nobody wrote", memory[2 * PAGE], 0);
	conform_join(child);
	conform_pass();
}
