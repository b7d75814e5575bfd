/*
 * A process that is to be told of messages in a POSIX queue by a thread (mq_notify, SIGEV_THREAD): what that begins with is
 * known to the kernel alone, which keeps it in a netlink socket of the C library's.
 */
#include "../queue.h"

static void tell(union sigval value)
{
	(void)value;
	conform_mark("told");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	mqd_t queue = queue_make_unlinked(0);
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
