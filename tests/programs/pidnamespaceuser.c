/* A PID namespace that has come with a user namespace, as containers of ordinary users have one; it leads a group of its own. */
#include "pidnamespace.h"

static void first(void *unused)
{
	(void)unused;
	EXPECT("user", getuid(), 0);
	BUILD(setpgid(0, 0));
	first_inside(1);
	EXPECT("user", getuid(), 0);
}

static void makes(void *unused)
{
	(void)unused;
	become_inside(0, CLONE_NEWPID);
	pid_t child = conform_spawn(first, NULL);
	conform_await("in-ready");
	conform_mark("made");
	conform_wait();
	conform_join(child);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t child = conform_spawn(makes, NULL);
	conform_await("made");
	conform_ready();
	conform_wait();
	conform_join(child);
	conform_pass();
}
