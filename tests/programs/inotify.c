/*
 * inotify: watches of folders and files with their numbers and masks, gaps in the numbers, one that is watched once only, a link
 * itself; two descriptors of one instance, and an epoll instance that waits for it.
 */
#include "conform.h"
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>

static int instance;

static void make(const char *name)
{
	BUILD(close((int)BUILD(open(conform_path(name), O_CREAT | O_WRONLY, 0600))));
}

static void expect(int watch, uint32_t mask, const char *name)
{
	char bytes[sizeof(struct inotify_event) + 255 + 1] __attribute__((aligned(8)));
	/* One at a time: no room for two. */
	ssize_t length = read(instance, bytes, sizeof(struct inotify_event) + (*name ? 16 : 0));
	struct inotify_event *event = (struct inotify_event *)bytes;
	EXPECT_BETWEEN("bytes of an event", length, sizeof *event, sizeof bytes);
	EXPECT("watch", event->wd, watch);
	EXPECT("event", event->mask, mask);
	EXPECT_TEXT("name", event->len ? event->name : "", name);
}

static void expect_none(void)
{
	int bytes;
	BUILD(ioctl(instance, FIONREAD, &bytes));
	EXPECT("bytes of further events", bytes, 0);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("folder"), 0700));
	BUILD(mkdir(conform_path("folder/below"), 0700));
	make("file");
	make("once");
	make("untold");
	BUILD(symlink("file", conform_path("link")));
	instance = (int)BUILD(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
	int gone = (int)BUILD(inotify_add_watch(instance, conform_path("untold"), IN_MODIFY));
	int folder = (int)BUILD(inotify_add_watch(instance, conform_path("folder"), IN_CREATE | IN_DELETE | IN_MOVE));
	int below = (int)BUILD(inotify_add_watch(instance, conform_path("folder/below"), IN_CREATE | IN_ONLYDIR));
	int file = (int)BUILD(inotify_add_watch(instance, conform_path("file"), IN_MODIFY | IN_CLOSE_WRITE));
	/* One that is deleted while it is open. */
	make("deleted");
	int held = (int)BUILD(open(conform_path("deleted"), O_RDWR));
	int deleted = (int)BUILD(inotify_add_watch(instance, conform_path("deleted"),
						IN_MODIFY | IN_CLOSE_WRITE | IN_DELETE_SELF));
	BUILD(unlink(conform_path("deleted")));
	BUILD(inotify_rm_watch(instance, gone));
	expect(gone, IN_IGNORED, "");
	int once = (int)BUILD(inotify_add_watch(instance, conform_path("once"), IN_MODIFY | IN_ONESHOT));
	int link = (int)BUILD(inotify_add_watch(instance, conform_path("link"), IN_DELETE_SELF | IN_ATTRIB | IN_DONT_FOLLOW));
	int blocking = (int)BUILD(inotify_init());
	BUILD(inotify_add_watch(blocking, conform_path("folder"), IN_DELETE_SELF));
	int copy = (int)BUILD(dup(instance));
	int waiting = (int)BUILD(epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 77};
	BUILD(epoll_ctl(waiting, EPOLL_CTL_ADD, copy, &event));
	make("folder/read");
	expect(folder, IN_CREATE, "read");

	conform_ready();
	conform_wait();

	expect_none();
	EXPECT("events for epoll", epoll_wait(waiting, &event, 1, 0), 0);
	EXPECT("flags", BUILD(fcntl(instance, F_GETFL)) & O_NONBLOCK, O_NONBLOCK);
	EXPECT("flags of the other", BUILD(fcntl(blocking, F_GETFL)) & O_NONBLOCK, 0);
	make("folder/new");
	EXPECT("events for epoll", epoll_wait(waiting, &event, 1, 0), 1);
	EXPECT("its data", event.data.u64, 77);
	expect(folder, IN_CREATE, "new");
	make("folder/below/newer");
	expect(below, IN_CREATE, "newer");
	BUILD(unlink(conform_path("folder/below/newer")));
	BUILD(unlink(conform_path("folder/new")));
	expect(folder, IN_DELETE, "new");
	int fd = (int)BUILD(open(conform_path("file"), O_WRONLY));
	conform_write_all(fd, "x", 1);
	BUILD(close(fd));
	expect(file, IN_MODIFY, "");
	expect(file, IN_CLOSE_WRITE, "");
	for (int i = 0; i < 2; i++) {
		fd = (int)BUILD(open(conform_path("once"), O_WRONLY));
		conform_write_all(fd, "x", 1);
		BUILD(close(fd));
	}
	expect(once, IN_MODIFY, "");
	expect(once, IN_IGNORED, "");
	BUILD(unlink(conform_path("link")));
	expect(link, IN_ATTRIB, "");
	expect(link, IN_DELETE_SELF, "");
	expect(link, IN_IGNORED, "");
	expect_none();
	conform_write_all(held, "x", 1);
	expect(deleted, IN_MODIFY, "");
	BUILD(close(held));
	expect(deleted, IN_CLOSE_WRITE, "");
	expect(deleted, IN_DELETE_SELF, "");
	expect(deleted, IN_IGNORED, "");
	expect_none();
	int fresh = (int)BUILD(inotify_add_watch(instance, conform_path("untold"), IN_MODIFY));
	EXPECT("a new one has a number of its own", fresh == folder || fresh == below || fresh == file, 0);
	conform_pass();
}
