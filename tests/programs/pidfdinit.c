/*
 * A descriptor of the job's init, of whom a child without a parent is one: the process that runs last, of a parent that has ended.
 */
#include "conform.h"
#include <poll.h>
#include <sys/syscall.h>

static long number_of(int fd)
{
	char path[64], info[1024];
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	conform_read_file(path, info, sizeof info);
	char *line = strstr(info, "Pid:");
	return line == NULL ? 0 : atol(line + 4);
}

static void orphan(void)
{
	pid_t parent = getppid();
	conform_mark("born");
	while (getppid() == parent)
		conform_sleep_ms(1);
	int fd = (int)syscall(SYS_pidfd_open, getppid(), 0);
	if (fd < 0 && errno == ENOSYS)
		conform_skip("this kernel has no pidfd_open");
	BUILD(fd);
	conform_mark("opened");
	conform_wait();
	EXPECT("whose descriptor it is", number_of(fd), getppid());
	struct pollfd one = {.fd = fd, .events = POLLIN};
	EXPECT("init has ended", BUILD(poll(&one, 1, 0)), 0);
	conform_mark("checked");
	_exit(0);
}

static void leaves(void *unused)
{
	(void)unused;
	if (BUILD(fork()) == 0)
		orphan();
	conform_await("born");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	conform_join(conform_spawn(leaves, NULL));
	conform_await("opened");
	conform_ready();
	conform_wait();
	conform_await("checked");
	conform_pass();
}
