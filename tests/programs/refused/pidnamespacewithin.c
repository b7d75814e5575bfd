/* A process in a PID namespace within another one of the job's own. */
#include "../namespaces.h"

static void innermost(void *unused)
{
	(void)unused;
	EXPECT("number in the inner namespace", getpid(), 1);
	conform_mark("born");
	conform_wait();
}

static void outer(void *unused)
{
	(void)unused;
	EXPECT("number in the outer namespace", getpid(), 1);
	BUILD(unshare(CLONE_NEWPID));
	conform_join(conform_spawn(innermost, NULL));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t maker = fork();
	if (maker == 0) {
		become_inside(0, CLONE_NEWPID);
		conform_join(conform_spawn(outer, NULL));
		_exit(0);
	}
	BUILD(maker);
	conform_await("born");
	/* The innermost one was made after the other two. */
	conform_expect_refusal(maker + 2, -1);
	conform_ready();
	conform_wait();
	conform_join(maker);
	conform_pass();
}
