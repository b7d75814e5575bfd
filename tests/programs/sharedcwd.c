/*
 * Processes with one working directory and one file mode creation mask (CLONE_FS), which are no threads of each other: a child
 * changes both, and its parent sees it. Another child has its own.
 */
#include "conform.h"
#include <sched.h>

enum { STACK = 256 * 1024 };

static void expect_directory(const char *who, const char *name)
{
	char expected[512], found[512];
	BUILD(realpath(conform_path(name), expected) == NULL ? -1 : 0);
	BUILD(getcwd(found, sizeof found) == NULL ? -1 : 0);
	EXPECT_TEXT(who, found, expected);
}

static int child(void *unused)
{
	(void)unused;
	BUILD(chdir(conform_path("first")));
	umask(031);
	conform_mark("child");
	conform_wait();
	expect_directory("child's directory", "first");
	BUILD(chdir(conform_path("second")));
	EXPECT("child's mask", umask(017), 031);
	conform_mark("changed");
	_exit(0);
}

static void apart(void *unused)
{
	(void)unused;
	conform_mark("apart");
	conform_wait();
	conform_await("changed");
	expect_directory("another child's directory", ".");
	EXPECT("another child's mask", umask(0), 022);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("first"), 0700));
	BUILD(mkdir(conform_path("second"), 0700));
	BUILD(chdir(conform_path(".")));
	umask(022);
	pid_t other = conform_spawn(apart, NULL);
	char *stack = conform_map(STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	pid_t process = (pid_t)BUILD(clone(child, stack + STACK, CLONE_FS | SIGCHLD, NULL));
	conform_await("child");
	conform_await("apart");
	conform_ready();
	conform_wait();
	conform_await("changed");
	expect_directory("directory", "second");
	EXPECT("mask", umask(0), 017);
	conform_join(process);
	conform_join(other);
	conform_pass();
}
