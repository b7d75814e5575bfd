/*
 * Processes with one table of descriptors (CLONE_FILES), which are no threads of each other: a child and a grandchild. What one
 * opens or closes the others see, and so are its record locks theirs. Another child has a table of its own.
 */
#include "conform.h"
#include <sched.h>

enum { STACK = 256 * 1024 };

static int ends[2], locked, own_copy;

static pid_t share(int (*body)(void *))
{
	char *stack = conform_map(STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	return (pid_t)BUILD(clone(body, stack + STACK, CLONE_FILES | SIGCHLD, NULL));
}

static int grandchild(void *unused)
{
	(void)unused;
	conform_mark("grandchild");
	conform_wait();
	/* A number that nobody has. */
	BUILD(dup2(ends[1], 77));
	conform_mark("made");
	_exit(0);
}

static int child(void *unused)
{
	(void)unused;
	struct flock lock = { .l_type = F_WRLCK, .l_len = 10 };
	BUILD(fcntl(locked, F_SETLK, &lock));
	pid_t below = share(grandchild);
	conform_mark("child");
	conform_wait();
	conform_await("made");
	conform_write_all(77, "through", 7);
	BUILD(close(77));
	conform_mark("closed");
	conform_join(below);
	_exit(0);
}

static void apart(void *unused)
{
	(void)unused;
	conform_mark("apart");
	conform_wait();
	conform_await("made");
	EXPECT_ERROR("descriptor that another table has", fcntl(77, F_GETFD), EBADF);
	struct flock lock = { .l_type = F_WRLCK, .l_len = 10 };
	BUILD(fcntl(locked, F_GETLK, &lock));
	EXPECT("lock that the others have", lock.l_type, F_WRLCK);
	conform_mark("looked");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(pipe(ends));
	locked = (int)BUILD(open(conform_path("locked"), O_RDWR | O_CREAT, 0600));
	own_copy = (int)BUILD(dup(locked));
	pid_t other = conform_spawn(apart, NULL), first = share(child);
	conform_await("child");
	conform_await("grandchild");
	conform_await("apart");
	conform_ready();
	conform_wait();
	conform_await("closed");
	EXPECT_ERROR("descriptor that a child has closed", fcntl(77, F_GETFD), EBADF);
	conform_expect_bytes("bytes that went through it", ends[0], "through");
	conform_await("looked");
	conform_join(first);
	conform_join(other);
	conform_pass();
}
