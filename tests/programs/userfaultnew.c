/* A userfaultfd that nobody has used yet. */
#include "conform.h"
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	/* 1 is UFFD_USER_MODE_ONLY: no privilege needed. */
	int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1), other = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1);
	if (fd < 0 || other < 0)
		conform_skip("this kernel or user has none");
	struct uffdio_api api = { .api = UFFD_API }, second = { .api = UFFD_API }, third = { .api = UFFD_API };
	BUILD(ioctl(other, UFFDIO_API, &api));
	conform_ready();
	conform_wait();
	BUILD(ioctl(fd, UFFDIO_API, &second));
	EXPECT_ERROR("a second handshake", ioctl(other, UFFDIO_API, &third), EINVAL);
	conform_pass();
}
