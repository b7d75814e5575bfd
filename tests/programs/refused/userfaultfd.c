/*
 * A userfaultfd: its pages are filled by a rule that the image cannot hold.
 */
#include "conform.h"
#include <sys/syscall.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	/* 1 is UFFD_USER_MODE_ONLY: no privilege needed. */
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1);
	if (fd < 0)
		conform_skip("this kernel or user has none");
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	EXPECT("descriptor is still open", fcntl(fd, F_GETFD) >= 0, 1);
	conform_pass();
}
