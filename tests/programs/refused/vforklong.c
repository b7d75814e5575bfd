/* A child of vfork that neither executes a program nor ends for long: its parent can't be stopped meanwhile. */
#include "conform.h"

static void waits(void *unused)
{
	(void)unused;
	pid_t child = vfork();
	if (child == 0) {
		/* In its parent's memory, which waits. */
		conform_mark("born");
		while (!conform_gone())
			conform_sleep_ms(5);
		_exit(0);
	}
	conform_join((pid_t)BUILD(child));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t parent = conform_spawn(waits, NULL);
	conform_await("born");
	conform_expect_refusal(parent, -1);
	conform_ready();
	conform_wait();
	conform_join(parent);
	conform_pass();
}
