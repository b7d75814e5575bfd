/*
 * fanotify: marks of folders and files with their masks, events by name that users may have, ignored ones, an epoll instance that
 * waits; root's group with descriptors.
 */
#include "conform.h"
#include <sys/epoll.h>
#include <sys/fanotify.h>

static int group;

static void make(const char *name)
{
	BUILD(close((int)BUILD(open(conform_path(name), O_CREAT | O_WRONLY, 0600))));
}

static void change(const char *name)
{
	int fd = (int)BUILD(open(conform_path(name), O_WRONLY));
	conform_write_all(fd, "x", 1);
	BUILD(close(fd));
}

static void watch(int fd, unsigned flags, uint64_t mask, const char *name)
{
	if (fanotify_mark(fd, FAN_MARK_ADD | flags, mask, AT_FDCWD, conform_path(name)) != 0)
		conform_skip("this file system can't be watched");
}

static void expect(uint64_t mask, const char *name)
{
	char bytes[1024] __attribute__((aligned(8)));
	ssize_t length = read(group, bytes, sizeof bytes);
	struct fanotify_event_metadata *event = (struct fanotify_event_metadata *)bytes;
	EXPECT_BETWEEN("bytes of an event", length, sizeof *event, sizeof bytes);
	EXPECT("one event alone", event->event_len, length);
	EXPECT("event", event->mask, mask);
	EXPECT("its descriptor", event->fd, FAN_NOFD);
	struct fanotify_event_info_fid *info = (struct fanotify_event_info_fid *)(event + 1);
	EXPECT("what is told of it", info->hdr.info_type, FAN_EVENT_INFO_TYPE_DFID_NAME);
	struct file_handle *handle = (struct file_handle *)info->handle;
	EXPECT_TEXT("name", (char *)handle->f_handle + handle->handle_bytes, name);
}

static void expect_none(void)
{
	char bytes[1024];
	EXPECT_ERROR("no further event", read(group, bytes, sizeof bytes), EAGAIN);
}

/* What the kernel tells of the marks, but for what is counted anew by every kernel. */
static void marks(int fd, char *text, size_t size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	conform_read_file(path, text, size);
	char *start = strstr(text, "fanotify flags");
	if (start == NULL)
		conform_fail("no list of marks");
	memmove(text, start, strlen(start) + 1);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	static char before[4096], after[4096], before_files[4096], after_files[4096];
	BUILD(mkdir(conform_path("folder"), 0700));
	make("file");
	make("folder/quiet");
	make("folder/untold");
	group = fanotify_init(FAN_CLASS_NOTIF | FAN_CLOEXEC | FAN_NONBLOCK | FAN_REPORT_DFID_NAME, O_RDONLY);
	if (group < 0)
		conform_skip("this kernel or user has none");
	watch(group, 0, FAN_CREATE | FAN_DELETE | FAN_MODIFY | FAN_EVENT_ON_CHILD | FAN_ONDIR, "folder");
	watch(group, 0, FAN_CLOSE_WRITE, "file");
	watch(group, FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY, FAN_MODIFY, "folder/quiet");
	int waiting = (int)BUILD(epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 77};
	BUILD(epoll_ctl(waiting, EPOLL_CTL_ADD, group, &event));
	int files = -1;
	if (geteuid() == 0) {
		files = (int)BUILD(fanotify_init(FAN_CLASS_CONTENT | FAN_UNLIMITED_QUEUE, O_RDWR | O_CLOEXEC));
		watch(files, 0, FAN_CLOSE_WRITE, "file");
		marks(files, before_files, sizeof before_files);
	}
	change("folder/untold");
	expect(FAN_MODIFY, "untold");
	marks(group, before, sizeof before);

	conform_ready();
	conform_wait();

	marks(group, after, sizeof after);
	EXPECT_TEXT("what the kernel tells of the group", after, before);
	expect_none();
	EXPECT("events for epoll", epoll_wait(waiting, &event, 1, 0), 0);
	change("folder/quiet");
	expect_none();
	change("folder/untold");
	EXPECT("events for epoll", epoll_wait(waiting, &event, 1, 0), 1);
	EXPECT("its data", event.data.u64, 77);
	expect(FAN_MODIFY, "untold");
	BUILD(mkdir(conform_path("folder/below"), 0700));
	expect(FAN_CREATE | FAN_ONDIR, "below");
	BUILD(unlink(conform_path("folder/untold")));
	expect(FAN_DELETE, "untold");
	change("file");
	expect(FAN_CLOSE_WRITE, "file");
	expect_none();
	EXPECT("flags", BUILD(fcntl(group, F_GETFL)) & O_NONBLOCK, O_NONBLOCK);
	if (geteuid() != 0) {
		int mark = fanotify_mark(group, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN, AT_FDCWD, "/");
		EXPECT("a mark that only root may have", mark, -1);
		EXPECT("why", errno, EPERM);
		conform_pass();
	}
	marks(files, after_files, sizeof after_files);
	EXPECT_TEXT("what the kernel tells of root's group", after_files, before_files);
	struct fanotify_event_metadata of_file;
	EXPECT("bytes of an event", read(files, &of_file, sizeof of_file), sizeof of_file);
	EXPECT("event", of_file.mask, FAN_CLOSE_WRITE);
	EXPECT("its process", of_file.pid, getpid());
	EXPECT("flags of its descriptor", BUILD(fcntl(of_file.fd, F_GETFL)) & O_ACCMODE, O_RDWR);
	conform_expect_bytes("the file", of_file.fd, "x");
	conform_pass();
}
