/*
 * Processes that were forked into a PID namespace of the job's own by one outside of it, beside the first one: their numbers and
 * parents; one whose parent has ended.
 */
#include "namespaces.h"

static void first(void *unused)
{
	(void)unused;
	EXPECT("first number", getpid(), 1);
	conform_mark("first");
	conform_wait();
	EXPECT("first number", getpid(), 1);
	conform_await("entered-ended");
	conform_await("orphan-ended");
	EXPECT_ERROR("child of the first one", waitpid(-1, NULL, 0), ECHILD);
}

static void below(void *parent)
{
	conform_mark("below");
	conform_wait();
	EXPECT("number", getpid(), *(pid_t *)parent + 1);
	EXPECT("parent inside", getppid(), *(pid_t *)parent);
}

static void entered(void *unused)
{
	(void)unused;
	pid_t own = getpid();
	EXPECT("number of one that came later", own > 1, 1);
	EXPECT("parent outside", getppid(), 0);
	BUILD(setpgid(0, 0));
	pid_t child = conform_spawn(below, &own);
	EXPECT("number of its child", child, own + 1);
	conform_await("below");
	conform_mark("entered");
	conform_wait();
	EXPECT("number of one that came later", getpid(), own);
	EXPECT("group of its own", getpgrp(), own);
	EXPECT("parent outside", getppid(), 0);
	conform_join(child);
}

static void orphan(void *unused)
{
	(void)unused;
	pid_t own = getpid();
	conform_mark("orphan");
	conform_wait();
	EXPECT("number of an orphan", getpid(), own);
	EXPECT("parent outside", getppid(), 0);
	conform_mark("orphan-ended");
}

/* Forks one into the namespace of its parent's children, and ends. */
static void passing(void *unused)
{
	char path[64];
	(void)unused;
	conform_await("first");
	snprintf(path, sizeof path, "/proc/%d/ns/pid_for_children", (int)getppid());
	int namespace = (int)BUILD(open(path, O_RDONLY | O_CLOEXEC));
	BUILD(setns(namespace, CLONE_NEWPID));
	BUILD(close(namespace));
	conform_spawn(orphan, NULL);
	conform_await("orphan");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	if (geteuid() != 0)
		become_inside(0, 0);
	pid_t passes = conform_spawn(passing, NULL);
	BUILD(unshare(CLONE_NEWPID));
	pid_t one = conform_spawn(first, NULL);
	conform_join(passes);
	pid_t other = conform_spawn(entered, NULL);
	conform_await("entered");
	conform_ready();
	conform_wait();
	conform_join(other);
	conform_mark("entered-ended");
	conform_join(one);
	conform_pass();
}
