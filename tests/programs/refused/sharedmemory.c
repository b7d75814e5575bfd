/* Two processes with one memory, which are no threads of each other (CLONE_VM), one of them with a child of its own. */
#include "conform.h"
#include <sched.h>

static volatile int forked;

static int waits(void *unused)
{
	(void)unused;
	const struct timespec rest = { .tv_nsec = 5000000 };
	pid_t below = fork();
	if (below == 0)
		pause();
	forked = 1;
	while (!conform_gone())
		nanosleep(&rest, NULL);
	kill(below, SIGKILL);
	waitpid(below, NULL, 0);
	_exit(0);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	enum { STACK = 256 * 1024 };
	char *stack = conform_map(STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	pid_t child = (pid_t)BUILD(clone(waits, stack + STACK, CLONE_VM | SIGCHLD, NULL));
	while (!forked)
		conform_sleep_ms(5);
	conform_expect_refusal(child, -1);
	conform_ready();
	conform_wait();
	conform_join(child);
	conform_pass();
}
