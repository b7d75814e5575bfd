/*
 * An io_uring: work may be in flight that nobody outside of the kernel can see.
 */
#include "conform.h"
#include <linux/io_uring.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct io_uring_params parameters = { 0 };
	int fd = (int)syscall(SYS_io_uring_setup, 4, &parameters);
	if (fd < 0)
		conform_skip("this kernel or user has none");
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	EXPECT("descriptor is still open", fcntl(fd, F_GETFD) >= 0, 1);
	conform_pass();
}
