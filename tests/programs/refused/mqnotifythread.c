/*
 * A process that is to be told of messages in a POSIX queue by a thread (mq_notify, SIGEV_THREAD): what that begins with is
 * known to the kernel alone, which keeps it in a netlink socket of the C library's.
 */
#include "conform.h"
#include <mqueue.h>

static void tell(union sigval value)
{
	(void)value;
	conform_mark("told");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char name[256];
	snprintf(name, sizeof name, "/notify-%d", getpid());
	struct mq_attr attributes = { .mq_maxmsg = 2, .mq_msgsize = 8 };
	mqd_t queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0600, &attributes);
	if (queue == (mqd_t)-1 && errno == ENOSYS)
		conform_skip("this kernel has no POSIX message queues");
	BUILD(queue);
	BUILD(mq_unlink(name));
	int library = (int)BUILD(dup((int)queue));
	BUILD(close(library));
	struct sigevent event = { .sigev_notify = SIGEV_THREAD, .sigev_notify_function = tell };
	BUILD(mq_notify(queue, &event));
	conform_expect_refusal(getpid(), library);
	conform_ready();
	conform_wait();
	BUILD(mq_send(queue, "x", 1, 0));
	conform_await("told");
	conform_pass();
}
