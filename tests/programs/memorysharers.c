/*
 * Processes with one memory, which are no threads of each other (CLONE_VM): a child with descriptors, directories, signal actions,
 * locks and a process group of its own, and its child, which shares all of these with it. What one writes the others read, also what
 * is mapped after a restart.
 */
#include "conform.h"
#include <sched.h>

enum { STACK = 256 * 1024, ROOM = 8 << 20, LONGEST = 4096 };

/* What the children see, who must not use what the C library has for each thread: they share it. */
static struct {
	volatile int ready, go, below_ready, below_go, child_signals, below_signals;
	volatile int only_parent, only_child, directory, mask, parent, group, action, written, mapped_fd;
	volatile int below_directory, below_only_child, below_parent, below_group;
	char *volatile mapped;
} told;

static char first[LONGEST], second[LONGEST];
static int ends[2], locked;
static pid_t grandchild_pid;

static void rest_until(volatile int *what)
{
	const struct timespec rest = { .tv_nsec = 5000000 };
	while (!*what)
		nanosleep(&rest, NULL);
}

static void on_signal(int number)
{
	(void)number;
	if (getpid() == grandchild_pid)
		told.below_signals++;
	else
		told.child_signals++;
}

static int is_in(const char *directory)
{
	char found[LONGEST];
	return getcwd(found, sizeof found) != NULL && strcmp(found, directory) == 0;
}

static pid_t share(int (*body)(void *), int flags)
{
	char *stack = conform_map(STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	return (pid_t)BUILD(clone(body, stack + STACK, CLONE_VM | flags | SIGCHLD, NULL));
}

static int grandchild(void *unused)
{
	(void)unused;
	told.below_ready = 1;
	rest_until(&told.below_go);
	told.below_parent = getppid();
	told.below_group = getpgrp();
	/* What the child has changed meanwhile. */
	told.below_directory = is_in(second);
	told.below_only_child = fcntl(77, F_GETFD);
	kill(getpid(), SIGUSR2);
	_exit(3);
}

static int child(void *unused)
{
	(void)unused;
	BUILD(setpgid(0, 0));
	BUILD(chdir(first));
	umask(031);
	BUILD(close(ends[0]));
	BUILD(dup2(ends[1], 76));
	const struct sigaction action = { .sa_handler = on_signal };
	BUILD(sigaction(SIGUSR2, &action, NULL));
	struct flock lock = { .l_type = F_WRLCK, .l_len = 10 };
	BUILD(fcntl(locked, F_SETLK, &lock));
	grandchild_pid = share(grandchild, CLONE_FILES | CLONE_FS | CLONE_SIGHAND);
	rest_until(&told.below_ready);
	told.ready = 1;
	rest_until(&told.go);
	told.only_parent = fcntl(ends[0], F_GETFD);
	told.only_child = fcntl(76, F_GETFD);
	told.directory = is_in(first);
	told.mask = (int)umask(0);
	told.parent = getppid();
	told.group = getpgrp();
	struct sigaction found;
	told.action = sigaction(SIGUSR2, NULL, &found) == 0 && found.sa_handler == on_signal;
	told.written = (int)write(76, "through", 7);
	told.mapped = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (told.mapped != MAP_FAILED)
		told.mapped[ROOM - 1] = 7;
	told.mapped_fd = dup2(76, 77);
	if (chdir(second) != 0 || kill(getpid(), SIGUSR2) != 0)
		_exit(1);
	told.below_go = 1;
	int status;
	if (waitpid(grandchild_pid, &status, 0) != grandchild_pid || WEXITSTATUS(status) != 3)
		_exit(2);
	_exit(0);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("first"), 0700));
	BUILD(mkdir(conform_path("second"), 0700));
	BUILD(realpath(conform_path("first"), first) == NULL ? -1 : 0);
	BUILD(realpath(conform_path("second"), second) == NULL ? -1 : 0);
	BUILD(chdir(conform_path(".")));
	umask(022);
	BUILD(pipe(ends));
	locked = (int)BUILD(open(conform_path("locked"), O_RDWR | O_CREAT, 0600));
	char *pattern = conform_map(ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	conform_fill(pattern, ROOM, 5);
	pid_t process = share(child, 0);
	rest_until(&told.ready);
	conform_ready();
	conform_wait();
	conform_verify("memory", pattern, ROOM, 5);
	EXPECT("children", getpgid(grandchild_pid), process);
	struct flock lock = { .l_type = F_WRLCK, .l_len = 10 };
	BUILD(fcntl(locked, F_GETLK, &lock));
	EXPECT("lock that the child has", lock.l_type, F_WRLCK);
	told.go = 1;
	conform_join(process);
	EXPECT("descriptor that the child has closed", told.only_parent, -1);
	EXPECT("descriptor that the child alone has", told.only_child, 0);
	EXPECT_ERROR("that one here", fcntl(76, F_GETFD), EBADF);
	EXPECT("child's directory", told.directory, 1);
	EXPECT("child's mask", told.mask, 031);
	EXPECT("child's parent", told.parent, getpid());
	EXPECT("child's group", told.group, process);
	EXPECT("child's action", told.action, 1);
	EXPECT("bytes that it wrote", told.written, 7);
	conform_expect_bytes("bytes that went through", ends[0], "through");
	EXPECT("memory that the child has mapped", told.mapped[ROOM - 1], 7);
	EXPECT("descriptor that it made", told.mapped_fd, 77);
	EXPECT("grandchild's directory, which the child has changed", told.below_directory, 1);
	EXPECT("grandchild's descriptor, which the child has made", told.below_only_child, 0);
	EXPECT("grandchild's parent", told.below_parent, process);
	EXPECT("grandchild's group", told.below_group, process);
	EXPECT("signals to the child", told.child_signals, 1);
	EXPECT("signals to the grandchild", told.below_signals, 1);
	struct sigaction found;
	BUILD(sigaction(SIGUSR2, NULL, &found));
	EXPECT("action here", found.sa_handler == SIG_DFL, 1);
	EXPECT("mask here", umask(0), 022);
	conform_pass();
}
