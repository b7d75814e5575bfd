/* A descriptor of a process (pidfd_open). */
#include "conform.h"
#include <sys/syscall.h>

static void waits(void *unused)
{
	(void)unused;
	conform_wait();
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t child = conform_spawn(waits, NULL);
	int fd = (int)BUILD(syscall(SYS_pidfd_open, child, 0));
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	conform_join(child);
	BUILD(close(fd));
	conform_pass();
}
