/*
 * fanotify: marks of a mount and of a file system.
 * conform: root
 */
#include "conform.h"
#include <sys/fanotify.h>

/* What the kernel tells of the marks, but for the number of the mount. */
static void marks(int fd, char *text, size_t size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	conform_read_file(path, text, size);
	char *start = strstr(text, "fanotify flags");
	if (start == NULL)
		conform_fail("no list of marks");
	memmove(text, start, strlen(start) + 1);
	char *number = strstr(text, "mnt_id:");
	if (number != NULL)
		memset(number + 7, 'N', strcspn(number + 7, " "));
	char *end = number ? strchr(number + 7, ' ') : NULL;
	if (end != NULL)
		memmove(number + 8, end, strlen(end) + 1);
}

/*
 * How many events are told of a process, which must be executions. Where the mount is the machine's, others execute programs on
 * it, too.
 */
static int events_of(int fd, pid_t process)
{
	struct fanotify_event_metadata events[64];
	int found = 0;
	for (ssize_t length; (length = read(fd, events, sizeof events)) > 0;)
		for (int i = 0; i < (int)(length / (ssize_t)sizeof *events); i++) {
			EXPECT("event", events[i].mask, FAN_OPEN_EXEC);
			found += events[i].pid == process;
			close(events[i].fd);
		}
	EXPECT("nothing more", errno, EAGAIN);
	return found;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	static char before[2][4096], after[4096];
	int of_mount = fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK, O_RDONLY);
	if (of_mount < 0)
		conform_skip("this kernel has none");
	BUILD(fanotify_mark(of_mount, FAN_MARK_ADD | FAN_MARK_MOUNT, FAN_OPEN_EXEC, AT_FDCWD, "/bin/sh"));
	BUILD(fanotify_mark(of_mount, FAN_MARK_ADD | FAN_MARK_FILESYSTEM | FAN_MARK_IGNORED_MASK | FAN_MARK_IGNORED_SURV_MODIFY,
			    FAN_OPEN, AT_FDCWD, "/"));
	int of_system = fanotify_init(FAN_CLASS_NOTIF | FAN_NONBLOCK | FAN_REPORT_FID, O_RDONLY);
	if (fanotify_mark(of_system, FAN_MARK_ADD | FAN_MARK_FILESYSTEM, FAN_FS_ERROR, AT_FDCWD, "/") != 0)
		conform_skip("this file system tells no errors");
	marks(of_mount, before[0], sizeof before[0]);
	marks(of_system, before[1], sizeof before[1]);

	conform_ready();
	conform_wait();

	EXPECT("events of nobody yet", events_of(of_mount, getpid()), 0);
	marks(of_mount, after, sizeof after);
	EXPECT_TEXT("what the kernel tells of the mount's group", after, before[0]);
	marks(of_system, after, sizeof after);
	EXPECT_TEXT("what the kernel tells of the file system's group", after, before[1]);
	pid_t child = (pid_t)BUILD(fork());
	if (child == 0) {
		execl("/bin/sh", "sh", "-c", "exit 0", NULL);
		_exit(1);
	}
	int status;
	BUILD(waitpid(child, &status, 0));
	EXPECT("events of the child", events_of(of_mount, child) > 0, 1);
	conform_pass();
}
