/*
 * POSIX message queues: attributes, messages with their priorities, a queue that no process has open, one without a name, and
 * processes that wait for a message and for room.
 */
#include "queue.h"

enum { MOST = 4, SIZE = 64 };

static const char *name_of(const char *which)
{
	char *name = malloc(256);
	snprintf(name, 256, "/%s.%s", conform_unique(), which);
	for (char *at = name + 1; *at; at++)
		if (*at == '/')
			*at = '-';
	return name;
}

static mqd_t make(const char *which, int flags)
{
	return queue_make(name_of(which), flags, 0640, MOST, SIZE);
}

static void put(mqd_t queue, unsigned priority, const char *text)
{
	BUILD(mq_send(queue, text, strlen(text) + 1, priority));
}

static void take(mqd_t queue, unsigned priority, const char *text)
{
	char found[SIZE];
	unsigned how = 0;
	ssize_t length = mq_receive(queue, found, sizeof found, &how);
	EXPECT("length of the message", length, strlen(text) + 1);
	EXPECT_TEXT("message", found, text);
	EXPECT("priority", how, priority);
}

static void count(mqd_t queue, long expected)
{
	struct mq_attr attributes;
	BUILD(mq_getattr(queue, &attributes));
	EXPECT("most messages", attributes.mq_maxmsg, MOST);
	EXPECT("size of a message", attributes.mq_msgsize, SIZE);
	EXPECT("messages", attributes.mq_curmsgs, expected);
}

static mqd_t full, empty;

static void waits_for_room(void *unused)
{
	(void)unused;
	conform_mark("sending");
	put(full, 9, "waited for room");
}

static void waits_for_message(void *unused)
{
	(void)unused;
	conform_mark("receiving");
	take(empty, 3, "for whoever waits");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	mqd_t queue = make("named", O_RDWR);
	put(queue, 1, "low");
	put(queue, 7, "first");
	put(queue, 7, "second");
	mqd_t reader = (mqd_t)BUILD(mq_open(name_of("named"), O_RDONLY | O_NONBLOCK));

	mqd_t unlinked = make("unlinked", O_RDWR | O_NONBLOCK);
	put(unlinked, 0, "nobody finds it");
	BUILD(mq_unlink(name_of("unlinked")));

	mqd_t unopened = make("unopened", O_WRONLY);
	put(unopened, 5, "left behind");
	BUILD(mq_close(unopened));

	full = make("full", O_RDWR);
	for (unsigned i = 0; i < MOST; i++)
		put(full, 10, "fills it");
	empty = make("empty", O_RDWR);
	pid_t sender = conform_spawn(waits_for_room, NULL);
	pid_t receiver = conform_spawn(waits_for_message, NULL);
	conform_await("sending");
	conform_await("receiving");

	conform_ready();
	conform_wait();

	count(reader, 3);
	struct stat status;
	BUILD(fstat((int)queue, &status));
	EXPECT("mode", status.st_mode & 07777, 0640);
	EXPECT("owner", status.st_uid, geteuid());
	take(reader, 7, "first");
	take(queue, 7, "second");
	take(reader, 1, "low");
	char none[SIZE];
	EXPECT_ERROR("an empty queue of a reader that does not wait", mq_receive(reader, none, SIZE, NULL), EAGAIN);
	EXPECT_ERROR("a reader writes", mq_send(reader, "x", 1, 0), EBADF);

	take(unlinked, 0, "nobody finds it");
	EXPECT_ERROR("the name of the unlinked one", mq_open(name_of("unlinked"), O_RDONLY), ENOENT);

	unopened = (mqd_t)BUILD(mq_open(name_of("unopened"), O_RDONLY | O_NONBLOCK));
	count(unopened, 1);
	take(unopened, 5, "left behind");

	put(empty, 3, "for whoever waits");
	conform_join(receiver);
	for (unsigned i = 0; i < MOST; i++)
		take(full, 10, "fills it");
	take(full, 9, "waited for room");
	conform_join(sender);
	const char *named[] = {"named", "unopened", "full", "empty"};
	for (size_t i = 0; i < sizeof named / sizeof *named; i++)
		BUILD(mq_unlink(name_of(named[i])));
	conform_pass();
}
