/* inotify with an event that nobody has read: it can't be put back. */
#include "conform.h"
#include <sys/inotify.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("watched"), 0700));
	int fd = (int)BUILD(inotify_init1(IN_NONBLOCK));
	BUILD(inotify_add_watch(fd, conform_path("watched"), IN_CREATE));
	BUILD(mkdir(conform_path("watched/new"), 0700));
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	char event[4096];
	EXPECT_BETWEEN("bytes of the event", read(fd, event, sizeof event), sizeof(struct inotify_event), sizeof event);
	conform_pass();
}
