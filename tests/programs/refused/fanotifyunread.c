/* A fanotify group with an event that is not read yet. */
#include "conform.h"
#include <sys/fanotify.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = fanotify_init(FAN_CLASS_NOTIF | FAN_REPORT_FID | FAN_NONBLOCK, O_RDONLY);
	if (fd < 0)
		conform_skip("this kernel or user has none");
	BUILD(mkdir(conform_path("folder"), 0700));
	if (fanotify_mark(fd, FAN_MARK_ADD, FAN_CREATE | FAN_ONDIR, AT_FDCWD, conform_path("folder")) != 0)
		conform_skip("this file system can't be watched");
	BUILD(mkdir(conform_path("folder/new"), 0700));
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	char bytes[512];
	EXPECT_BETWEEN("bytes of the event", read(fd, bytes, sizeof bytes), sizeof(struct fanotify_event_metadata),
		       sizeof bytes);
	conform_pass();
}
