/* Names that the kernel shows otherwise than they are: of a process and of threads with a line feed, a backslash, a colon and
 * blanks around, of a message queue that ends as the mark of deleted files does. */
#include "queue.h"
#include <pthread.h>
#include <sys/prctl.h>

static const char *const names[] = {"line\nfeed", "back\\slash\\n", " rank:1\n "};

static void check_name(const char *what, const char *expected)
{
	char name[17] = "";
	BUILD(prctl(PR_GET_NAME, name));
	EXPECT_TEXT(what, name, expected);
}

static void *thread(void *name)
{
	BUILD(prctl(PR_SET_NAME, name));
	conform_mark(name == names[1] ? "named" : "named too");
	conform_await("checked");
	check_name("name of a thread", name);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t others[2];
	char name[256], byte[16];
	snprintf(name, sizeof name, "/%s (deleted)", conform_unique());
	for (char *at = name + 1; *at; at++)
		if (*at == '/')
			*at = '-';
	mqd_t queue = queue_make(name, O_RDWR | O_CREAT | O_EXCL, 0600, 2, sizeof byte);
	BUILD(mq_send(queue, "x", 1, 1));
	for (int i = 0; i < 2; i++)
		BUILD0(pthread_create(&others[i], NULL, thread, (void *)names[i + 1]));
	conform_await("named");
	conform_await("named too");
	BUILD(prctl(PR_SET_NAME, names[0]));
	conform_ready();
	conform_wait();
	check_name("name of the process", names[0]);
	conform_mark("checked");
	for (int i = 0; i < 2; i++)
		BUILD0(pthread_join(others[i], NULL));
	mqd_t by_name = (mqd_t)BUILD(mq_open(name, O_RDWR | O_NONBLOCK));
	EXPECT("message", mq_receive(by_name, byte, sizeof byte, NULL), 1);
	BUILD(mq_unlink(name));
	conform_pass();
}
