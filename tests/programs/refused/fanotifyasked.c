/*
 * A fanotify group that is asked for permission: who opens the file waits for it.
 * conform: root
 */
#include "conform.h"
#include <sys/fanotify.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = fanotify_init(FAN_CLASS_CONTENT, O_RDONLY);
	if (fd < 0)
		conform_skip("this kernel or user has none");
	BUILD(close((int)BUILD(open(conform_path("file"), O_CREAT | O_WRONLY, 0600))));
	if (fanotify_mark(fd, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, conform_path("file")) != 0)
		conform_skip("this kernel has no permission events");
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	EXPECT("descriptor is still open", fcntl(fd, F_GETFD) >= 0, 1);
	conform_pass();
}
