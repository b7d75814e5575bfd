/*
 * CLOCK_MONOTONIC and CLOCK_BOOTTIME go on where they were: neither back nor ahead over the time between the end
 * of the job and its restart.
 * conform: pause=2500
 */
#include "conform.h"

enum { MOST_JUMP_MS = 2000 };
static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_BOOTTIME, CLOCK_MONOTONIC_RAW, CLOCK_MONOTONIC_COARSE };
enum { CLOCKS = sizeof clocks / sizeof *clocks };
static int64_t last[CLOCKS];

static void look(void *unused)
{
	(void)unused;
	for (int i = 0; i < CLOCKS; i++) {
		int64_t now = conform_clock(clocks[i]);
		EXPECT_BETWEEN("step of a clock in ms", (now - last[i]) / 1000000, 0, MOST_JUMP_MS);
		if (now < last[i])
			conform_fail("clock %d went back", (int)clocks[i]);
		last[i] = now;
	}
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	for (int i = 0; i < CLOCKS; i++)
		last[i] = conform_clock(clocks[i]);
	conform_ready();
	conform_wait_with(look, NULL);
	look(NULL);
	conform_pass();
}
