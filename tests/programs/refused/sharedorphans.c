/* Two processes with one table of descriptors that their parent does not have any more. */
#include "conform.h"
#include <sched.h>

enum { STACK = 256 * 1024 };

static int waits(void *unused)
{
	(void)unused;
	conform_wait();
	_exit(0);
}

static pid_t share(void)
{
	char *stack = conform_map(STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	return (pid_t)BUILD(clone(waits, stack + STACK, CLONE_FILES | SIGCHLD, NULL));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t first = share(), second = share();
	BUILD(unshare(CLONE_FILES));
	conform_expect_refusal(second, -1);
	conform_ready();
	conform_wait();
	conform_join(first);
	conform_join(second);
	conform_pass();
}
