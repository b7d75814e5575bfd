/*
 * A process in a namespace of a user namespace in which it is not (setns), and nobody else of that user namespace is.
 *
 * conform: root
 */
#include "../namespaces.h"

static void inside(void *unused)
{
	(void)unused;
	become_inside(0, CLONE_NEWUTS);
	conform_mark("inside");
	conform_await("entered");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char path[64];
	pid_t child = conform_spawn(inside, NULL);
	conform_await("inside");
	snprintf(path, sizeof path, "/proc/%d/ns/uts", child);
	int fd = (int)BUILD(open(path, O_RDONLY | O_CLOEXEC));
	BUILD(setns(fd, 0));
	BUILD(close(fd));
	conform_mark("entered");
	conform_join(child);
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_pass();
}
