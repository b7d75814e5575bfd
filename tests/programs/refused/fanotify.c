/*
 * A fanotify group: it watches this machine's file systems.
 * conform: root
 */
#include "conform.h"
#include <sys/fanotify.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = fanotify_init(FAN_CLASS_NOTIF, O_RDONLY);
	if (fd < 0)
		conform_skip("this kernel or user has none");
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	EXPECT("descriptor is still open", fcntl(fd, F_GETFD) >= 0, 1);
	conform_pass();
}
