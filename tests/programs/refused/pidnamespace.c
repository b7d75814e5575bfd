/* A process in a PID namespace of its own, within the job. */
#include "conform.h"
#include <sched.h>

static void lives_apart(void *unused)
{
	(void)unused;
	EXPECT("pid in a namespace of its own", getpid(), 1);
	conform_mark("born");
	conform_wait();
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	if (unshare(CLONE_NEWPID) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWPID) != 0)
		conform_skip("PID namespaces are forbidden here");
	pid_t child = conform_spawn(lives_apart, NULL);
	conform_await("born");
	conform_expect_refusal(child, -1);
	conform_ready();
	conform_wait();
	conform_join(child);
	conform_pass();
}
