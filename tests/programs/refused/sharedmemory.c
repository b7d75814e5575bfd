/* Two processes with one memory, which are no threads of each other (CLONE_VM). */
#include "conform.h"
#include <sched.h>

static int waits(void *unused)
{
	(void)unused;
	const struct timespec rest = { .tv_nsec = 5000000 };
	while (!conform_gone())
		nanosleep(&rest, NULL);
	_exit(0);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	enum { STACK = 256 * 1024 };
	char *stack = conform_map(STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	pid_t child = (pid_t)BUILD(clone(waits, stack + STACK, CLONE_VM | SIGCHLD, NULL));
	conform_expect_refusal(child, -1);
	conform_ready();
	conform_wait();
	conform_join(child);
	conform_pass();
}
