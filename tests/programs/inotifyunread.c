/*
 * inotify with events that nobody has read: of every kind, of watches that are gone meanwhile, both sides of a renaming, and a
 * queue that has lost some. A twin of each instance, read before, says what is to be read.
 */
#include "conform.h"
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>

#define MOST (1 << 20)

/* An instance and what its twin has been told. */
static struct instance {
	int fd;
	char *expected;
	size_t length;
} various, full, late;

static int queued(int fd)
{
	int bytes;
	BUILD(ioctl(fd, FIONREAD, &bytes));
	return bytes;
}

static char *read_all(int fd, size_t *length)
{
	char *bytes = malloc(MOST);
	for (*length = 0; queued(fd) > 0;)
		*length += (size_t)BUILD(read(fd, bytes + *length, MOST - *length));
	return bytes;
}

static int watch(int both[2], const char *name, uint32_t mask)
{
	int number = (int)BUILD(inotify_add_watch(both[0], conform_path(name), mask));
	EXPECT("number of the twin's watch", BUILD(inotify_add_watch(both[1], conform_path(name), mask)), number);
	return number;
}

static void begin(int both[2])
{
	both[0] = (int)BUILD(inotify_init1(IN_NONBLOCK));
	both[1] = (int)BUILD(inotify_init1(IN_NONBLOCK));
}

static void end(int both[2], struct instance *instance)
{
	instance->fd = both[0];
	instance->expected = read_all(both[1], &instance->length);
	EXPECT("bytes of the twin", (long)instance->length, queued(both[0]));
	BUILD(close(both[1]));
}

static void touch(const char *name, int flags)
{
	int fd = (int)BUILD(open(conform_path(name), O_CREAT | O_RDWR | flags, 0600));
	conform_write_all(fd, "content", 7);
	char byte;
	BUILD(pread(fd, &byte, 1, 0));
	BUILD(close(fd));
}

static void move(const char *from, const char *to)
{
	BUILD(rename(conform_path(from), conform_path(to)));
}

static void of_every_kind(void)
{
	int both[2];
	for (const char *const *name = (const char *const[]){"a", "b", "out", "gone", "moving", NULL}; *name; name++)
		BUILD(mkdir(conform_path(*name), 0700));
	touch("file", 0);
	touch("once", 0);
	touch("out/comes", 0);
	begin(both);
	watch(both, "a", IN_ALL_EVENTS);
	int never = watch(both, "moving", IN_DELETE_SELF);
	watch(both, "b", IN_CREATE | IN_DELETE | IN_MOVE | IN_ONLYDIR);
	watch(both, "file", IN_ALL_EVENTS);
	watch(both, "once", IN_MODIFY | IN_ONESHOT);
	watch(both, "gone", IN_ALL_EVENTS);
	watch(both, "moving", IN_MOVE_SELF);
	for (int i = 0; i < 2; i++)
		BUILD(inotify_rm_watch(both[i], never));
	watch(both, "moving", IN_MOVE_SELF | IN_ATTRIB);
	touch("a/name", 0);
	touch("a/a name that takes more than sixteen bytes \xff", 0);
	BUILD(mkdir(conform_path("a/folder"), 0700));
	BUILD(chmod(conform_path("a/folder"), 0750));
	BUILD(chmod(conform_path("a"), 0750));
	BUILD(chmod(conform_path("file"), 0640));
	touch("file", O_TRUNC);
	BUILD(close((int)BUILD(open(conform_path("file"), O_RDONLY))));
	move("a/name", "b/name");
	move("b/name", "b/other");
	move("b/other", "out/other");
	move("out/comes", "a/comes");
	move("a/folder", "b/folder");
	BUILD(rmdir(conform_path("b/folder")));
	BUILD(unlink(conform_path("a/comes")));
	touch("a/comes", 0);
	touch("once", 0);
	touch("gone/inside", 0);
	BUILD(unlink(conform_path("gone/inside")));
	BUILD(rmdir(conform_path("gone")));
	move("moving", "moved");
	end(both, &various);
}

/* More than an instance queues; with more behind what tells so where some are read. */
static void too_many(struct instance *instance, int reads)
{
	int both[2];
	long most = 0;
	FILE *file = fopen("/proc/sys/fs/inotify/max_queued_events", "r");
	BUILD(file && fscanf(file, "%ld", &most) == 1 ? 0 : -1);
	fclose(file);
	begin(both);
	watch(both, "full", IN_OPEN | IN_CLOSE);
	for (long i = 0; i < most / 2 + 8; i++)
		BUILD(close((int)BUILD(open(conform_path("full"), O_RDONLY))));
	char bytes[4096];
	for (int i = 0; i < 2 * reads; i++)
		BUILD(read(both[i % 2], bytes, sizeof bytes));
	if (reads > 0)
		touch("full", 0);
	end(both, instance);
}

/* A cookie is the machine's: two events have the same one, or not, as before. */
static void expect_same(struct instance *instance)
{
	size_t length;
	char *found = read_all(instance->fd, &length);
	EXPECT("bytes of events", length, instance->length);
	uint32_t was = 0, is = 0;
	for (size_t at = 0; at < length;) {
		struct inotify_event *event = (struct inotify_event *)(found + at);
		struct inotify_event *expected = (struct inotify_event *)(instance->expected + at);
		EXPECT("watch", event->wd, expected->wd);
		EXPECT("event", event->mask, expected->mask);
		EXPECT("bytes of the name", event->len, expected->len);
		EXPECT("the same name", memcmp(event->name, expected->name, event->len), 0);
		EXPECT("whether it has a cookie", event->cookie != 0, expected->cookie != 0);
		EXPECT("whether it is that of the event before", event->cookie == is, expected->cookie == was);
		was = expected->cookie;
		is = event->cookie;
		at += sizeof *event + event->len;
	}
	free(found);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	touch("full", 0);
	of_every_kind();
	too_many(&full, 0);
	too_many(&late, 3);
	int waiting = (int)BUILD(epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 77};
	BUILD(epoll_ctl(waiting, EPOLL_CTL_ADD, various.fd, &event));

	conform_ready();
	conform_wait();

	EXPECT("events for epoll", epoll_wait(waiting, &event, 1, 0), 1);
	expect_same(&various);
	EXPECT("events for epoll", epoll_wait(waiting, &event, 1, 0), 0);
	expect_same(&full);
	expect_same(&late);
	/* Watches are as they were, and so is the number of the next one. */
	BUILD(mkdir(conform_path("a/later"), 0700));
	struct inotify_event *told = malloc(MOST);
	EXPECT("bytes of one event", BUILD(read(various.fd, told, MOST)), sizeof *told + 16);
	EXPECT("its watch", told->wd, 1);
	EXPECT("what it tells", told->mask, IN_CREATE | IN_ISDIR);
	EXPECT_TEXT("its name", told->name, "later");
	BUILD(inotify_rm_watch(various.fd, 3));
	EXPECT("bytes of one event", BUILD(read(various.fd, told, MOST)), sizeof *told);
	EXPECT("its watch", told->wd, 3);
	EXPECT("what it tells", told->mask, IN_IGNORED);
	EXPECT("number of a new watch", BUILD(inotify_add_watch(various.fd, conform_path("out"), IN_CREATE)), 8);
	conform_pass();
}
