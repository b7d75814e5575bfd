/*
 * A timer of its own CPU time that a thread has made and not armed, in a process of several threads: the kernel does not tell
 * whose it is, and nothing changes what is left of it.
 */
#include "conform.h"
#include <pthread.h>

static _Atomic int made;
static timer_t timer;

static void *worker(void *unused)
{
	(void)unused;
	struct sigevent event = { .sigev_notify = SIGEV_NONE };
	BUILD(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timer));
	made = 1;
	while (!conform_gone())
		conform_sleep_ms(5);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t other;
	BUILD0(pthread_create(&other, NULL, worker, NULL));
	while (!made)
		conform_sleep_ms(1);
	conform_expect_asked_refusal(getpid());
	conform_ready();
	conform_wait();
	BUILD0(pthread_join(other, NULL));
	BUILD(timer_delete(timer));
	conform_pass();
}
