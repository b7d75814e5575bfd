/* What descriptors of processes that were waited for tell of how these have ended (PIDFD_GET_INFO, Linux 6.15): with a status, and
 * by a signal. Also the flags of descriptions of folders and files of /proc/PID. */
#include "conform.h"
#include <sys/ioctl.h>
#include <sys/syscall.h>

enum { EXIT = 1 << 3 };
struct info {
	uint64_t mask, control_group;
	uint32_t numbers[11];
	int32_t status;
};
#define GET_INFO _IOWR(0xff, 11, struct info)

static void ends(void *argument)
{
	int signal = *(int *)argument;
	conform_await("opened");
	if (signal)
		kill(getpid(), signal);
	_exit(44);
}

static int status_of(int fd)
{
	struct info info = { .mask = EXIT };
	return ioctl(fd, GET_INFO, &info) == 0 && (info.mask & EXIT) ? info.status : -1;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int signals[2] = { 0, SIGUSR2 }, fds[2], before[2];
	pid_t children[2];
	for (int i = 0; i < 2; i++) {
		children[i] = conform_spawn(ends, &signals[i]);
		fds[i] = (int)BUILD(syscall(SYS_pidfd_open, children[i], 0));
	}
	conform_mark("opened");
	for (int i = 0; i < 2; i++) {
		BUILD(waitpid(children[i], NULL, 0));
		before[i] = status_of(fds[i]);
	}
	const int files[] = {
		(int)BUILD(open("/proc/self", O_RDONLY)),
		(int)BUILD(open("/proc/self/fd", O_RDONLY)),
		(int)BUILD(open("/proc/self/task", O_PATH)),
		(int)BUILD(open("/proc/self/status", O_RDONLY | O_NONBLOCK | O_NOFOLLOW)),
	};
	enum { FILES = sizeof files / sizeof *files };
	int flags[FILES];
	for (int i = 0; i < FILES; i++)
		flags[i] = (int)BUILD(fcntl(files[i], F_GETFL));
	conform_ready();
	conform_wait();
	EXPECT("status", status_of(fds[0]), before[0]);
	EXPECT("signal", status_of(fds[1]), before[1]);
	for (int i = 0; i < FILES; i++)
		EXPECT("flags", fcntl(files[i], F_GETFL), flags[i]);
	conform_pass();
}
