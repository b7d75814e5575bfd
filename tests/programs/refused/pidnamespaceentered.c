/* A process that was forked into a PID namespace of the job's own by one outside of it, beside its first one. */
#include "../namespaces.h"

static void first(void *unused)
{
	(void)unused;
	EXPECT("first number", getpid(), 1);
	conform_mark("first");
	conform_wait();
	conform_await("second-ended");
}

static void second(void *unused)
{
	(void)unused;
	EXPECT("second number", getpid(), 2);
	EXPECT("parent outside", getppid(), 0);
	conform_mark("second");
	conform_wait();
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	if (unshare(CLONE_NEWPID) != 0)
		become_inside(0, CLONE_NEWPID);
	pid_t one = conform_spawn(first, NULL);
	conform_await("first");
	pid_t other = conform_spawn(second, NULL);
	conform_await("second");
	conform_expect_refusal(other, -1);
	conform_ready();
	conform_wait();
	conform_join(other);
	conform_mark("second-ended");
	conform_join(one);
	conform_pass();
}
