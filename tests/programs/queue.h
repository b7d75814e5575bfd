/* What the programs of POSIX message queues share. */
#ifndef QUEUE_H
#define QUEUE_H
#include "conform.h"
#include <mqueue.h>

/* A new queue with room for so many messages of so many bytes; skips where the kernel has none. */
static inline mqd_t queue_make(const char *name, int flags, mode_t mode, long most, long size)
{
	struct mq_attr attributes = { .mq_maxmsg = most, .mq_msgsize = size };
	mqd_t queue = mq_open(name, O_CREAT | O_EXCL | flags, mode, &attributes);
	if (queue == (mqd_t)-1 && errno == ENOSYS)
		conform_skip("this kernel has no POSIX message queues");
	return (mqd_t)BUILD(queue);
}

/* One without a name, for two messages of 8 bytes. */
static inline mqd_t queue_make_unlinked(int number)
{
	char name[256];
	snprintf(name, sizeof name, "/%s-%d", conform_unique(), number);
	mqd_t queue = queue_make(name, O_RDWR | O_NONBLOCK, 0600, 2, 8);
	BUILD(mq_unlink(name));
	return queue;
}
#endif
