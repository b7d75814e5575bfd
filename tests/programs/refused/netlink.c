/*
 * A netlink socket: its state is in this kernel.
 */
#include "conform.h"
#include <linux/netlink.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = socket(AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT);
	if (fd < 0)
		conform_skip("this kernel or user has none");
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	EXPECT("descriptor is still open", fcntl(fd, F_GETFD) >= 0, 1);
	conform_pass();
}
