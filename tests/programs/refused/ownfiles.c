/* A thread with a table of descriptors of its own (unshare). */
#include "conform.h"
#include <pthread.h>
#include <sched.h>

static void *apart(void *unused)
{
	BUILD(unshare(CLONE_FILES));
	conform_mark("apart");
	conform_wait();
	return unused;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t thread;
	BUILD0(pthread_create(&thread, NULL, apart, NULL));
	conform_await("apart");
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	BUILD0(pthread_join(thread, NULL));
	conform_pass();
}
