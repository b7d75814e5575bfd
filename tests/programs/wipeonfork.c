/* WIPEONFORK and DONTFORK areas keep their content over a checkpoint, and their meaning at a fork. */
#include "conform.h"

enum { PAGE = CONFORM_PAGE, SIZE = 8 * PAGE };
static char *wiped, *absent;

static void child(void *unused)
{
	(void)unused;
	for (int at = 0; at < SIZE; at++)
		if (wiped[at] != 0)
			conform_fail("WIPEONFORK area in a child, expected 0, found %d", wiped[at]);
	EXPECT("DONTFORK area in a child faults", conform_faults(absent, false), 1);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	wiped = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	absent = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	conform_fill(wiped, SIZE, 1);
	conform_fill(absent, SIZE, 2);
	BUILD(madvise(wiped, SIZE, MADV_WIPEONFORK));
	BUILD(madvise(absent, SIZE, MADV_DONTFORK));
	conform_ready();
	conform_wait();
	conform_verify("WIPEONFORK area", wiped, SIZE, 1);
	conform_verify("DONTFORK area", absent, SIZE, 2);
	conform_join(conform_spawn(child, NULL));
	conform_pass();
}
