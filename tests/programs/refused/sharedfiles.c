/* Two processes with one table of descriptors (CLONE_FILES without CLONE_THREAD). */
#include "conform.h"
#include <sched.h>

static int waits(void *unused)
{
	(void)unused;
	conform_wait();
	_exit(0);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	enum { STACK = 256 * 1024 };
	char *stack = conform_map(STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	pid_t child = (pid_t)BUILD(clone(waits, stack + STACK, CLONE_FILES | SIGCHLD, NULL));
	conform_expect_refusal(child, -1);
	conform_ready();
	conform_wait();
	conform_join(child);
	conform_pass();
}
