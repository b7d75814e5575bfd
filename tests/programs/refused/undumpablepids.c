/*
 * A process that nobody may look into (PR_SET_DUMPABLE), in a job with a PID namespace of its own: it would have to be open to
 * others for as long as the writing takes.
 * conform: user
 */
#include "../namespaces.h"
#include <sys/prctl.h>

static void first(void *unused)
{
	(void)unused;
	conform_mark("born");
	conform_wait();
}

static void makes(void *unused)
{
	(void)unused;
	become_inside(0, CLONE_NEWPID);
	conform_join(conform_spawn(first, NULL));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t child = conform_spawn(makes, NULL);
	conform_await("born");
	BUILD(prctl(PR_SET_DUMPABLE, 0));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	EXPECT("dumpable", prctl(PR_GET_DUMPABLE), 0);
	conform_join(child);
	conform_pass();
}
