/* Names that the kernel shows otherwise than they are: of a process and a thread with a line feed and a backslash, of a message
 * queue that ends as the mark of deleted files does. */
#include "queue.h"
#include <pthread.h>
#include <sys/prctl.h>

static const char *const names[] = {"line\nfeed", "back\\slash\\n"};

static void check_name(const char *what, const char *expected)
{
	char name[17] = "";
	BUILD(prctl(PR_GET_NAME, name));
	EXPECT_TEXT(what, name, expected);
}

static void *thread(void *unused)
{
	(void)unused;
	BUILD(prctl(PR_SET_NAME, names[1]));
	conform_mark("named");
	conform_await("checked");
	check_name("name of the thread", names[1]);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t other;
	char name[256], byte[16];
	snprintf(name, sizeof name, "/%s (deleted)", conform_unique());
	for (char *at = name + 1; *at; at++)
		if (*at == '/')
			*at = '-';
	mqd_t queue = queue_make(name, O_RDWR | O_CREAT | O_EXCL, 0600, 2, sizeof byte);
	BUILD(mq_send(queue, "x", 1, 1));
	BUILD0(pthread_create(&other, NULL, thread, NULL));
	conform_await("named");
	BUILD(prctl(PR_SET_NAME, names[0]));
	conform_ready();
	conform_wait();
	check_name("name of the process", names[0]);
	conform_mark("checked");
	BUILD0(pthread_join(other, NULL));
	mqd_t by_name = (mqd_t)BUILD(mq_open(name, O_RDWR | O_NONBLOCK));
	EXPECT("message", mq_receive(by_name, byte, sizeof byte, NULL), 1);
	BUILD(mq_unlink(name));
	conform_pass();
}
