/* WIPEONFORK and DONTFORK areas keep their content and guard regions over a checkpoint, and their meaning at a fork. */
#include "conform.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

enum { PAGE = CONFORM_PAGE, SIZE = 8 * PAGE };
static char *wiped, *absent;

static void child(void *unused)
{
	(void)unused;
	for (int at = 0; at < 6 * PAGE; at++)
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
	bool guarded = madvise(wiped + 6 * PAGE, PAGE, MADV_GUARD_INSTALL) == 0 &&
		       madvise(absent + 7 * PAGE, PAGE, MADV_GUARD_INSTALL) == 0;
	conform_ready();
	conform_wait();
	conform_verify("WIPEONFORK area", wiped, guarded ? 6 * PAGE : SIZE, 1);
	conform_verify("DONTFORK area", absent, guarded ? 7 * PAGE : SIZE, 2);
	if (guarded) {
		EXPECT("guard region in a WIPEONFORK area faults", conform_faults(wiped + 6 * PAGE, false), 1);
		EXPECT("guard region in a DONTFORK area faults", conform_faults(absent + 7 * PAGE, true), 1);
	}
	conform_join(conform_spawn(child, NULL));
	conform_pass();
}
