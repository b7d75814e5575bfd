/* A PID namespace for a process's children, in which none can be any more: its first process has ended. */
#include "../namespaces.h"

static void ends(void *unused)
{
	(void)unused;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	if (unshare(CLONE_NEWPID) != 0)
		become_inside(0, CLONE_NEWPID);
	conform_join(conform_spawn(ends, NULL));
	EXPECT_ERROR("another child", fork(), ENOMEM);
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_pass();
}
