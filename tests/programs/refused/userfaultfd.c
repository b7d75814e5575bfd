/* A userfaultfd that a child holds, too: whose pages it is about can't be told. */
#include "conform.h"
#include <sys/syscall.h>

static void child(void *unused)
{
	(void)unused;
	conform_mark("born");
	conform_await("over");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	/* 1 is UFFD_USER_MODE_ONLY: no privilege needed. */
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1);
	if (fd < 0)
		conform_skip("this kernel or user has none");
	pid_t pid = conform_spawn(child, NULL);
	conform_await("born");
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	conform_mark("over");
	conform_join(pid);
	EXPECT("descriptor is still open", fcntl(fd, F_GETFD) >= 0, 1);
	conform_pass();
}
