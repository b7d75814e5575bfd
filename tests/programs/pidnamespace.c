/*
 * A PID namespace of a process's own, which its children are in: their numbers, threads, orphans, sessions and groups, and
 * what the kernel tells of these there; the parent has stayed outside.
 * conform: root
 */
#include "pidnamespace.h"

static void first(void *unused)
{
	(void)unused;
	first_inside(0);
}

static void later(void *unused)
{
	(void)unused;
	EXPECT("parent outside", getppid(), 0);
	EXPECT("in the namespace of before", getpid() > 1, 1);
}

int main(int argc, char **argv)
{
	int status;
	conform_start(argc, argv);
	if (unshare(CLONE_NEWPID) != 0)
		conform_skip("PID namespaces are forbidden here");
	pid_t own = getpid(), child = conform_spawn(first, NULL);
	conform_await("in-ready");
	conform_ready();
	conform_wait();
	EXPECT("own number", getpid(), own);
	conform_join(conform_spawn(later, NULL));
	EXPECT("child by its number outside", BUILD(waitpid(child, &status, 0)), child);
	EXPECT("its status", status, 0);
	EXPECT_ERROR("another child, now that the first one has ended", fork(), ENOMEM);
	conform_pass();
}
