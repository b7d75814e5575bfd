/*
 * Timers of threads' own CPU time (CLOCK_THREAD_CPUTIME_ID) in a process of several threads, which signal the process or
 * nobody, or have a function called by a thread of the library's: each goes on counting the time of the thread that made it, and of no other.
 */
#include "conform.h"
#include <pthread.h>

enum { THREADS = 3, FAR_S = 3600, BURNT_MS = 100 };

static timer_t timers[THREADS];
static pthread_barrier_t made, turns[THREADS];

static int64_t left_ns(timer_t timer)
{
	struct itimerspec left;
	BUILD(timer_gettime(timer, &left));
	if (left.it_value.tv_sec > 0)
		EXPECT("period", left.it_interval.tv_sec, 77);
	return left.it_value.tv_sec * 1000000000LL + left.it_value.tv_nsec;
}

static void called(union sigval value)
{
	(void)value;
}

static void make(int who)
{
	static const int ways[THREADS] = { SIGEV_SIGNAL, SIGEV_NONE, SIGEV_THREAD };
	struct sigevent event = { .sigev_notify = ways[who], .sigev_signo = SIGRTMIN + who };
	if (ways[who] == SIGEV_THREAD)
		event.sigev_notify_function = called;
	struct itimerspec distant = { .it_value = { FAR_S * (who + 1), 0 }, .it_interval = { 77, 0 } };
	BUILD(timer_create(CLOCK_THREAD_CPUTIME_ID, &event, &timers[who]));
	BUILD(timer_settime(timers[who], 0, &distant, NULL));
}

static void burn(void)
{
	int64_t until = conform_clock(CLOCK_THREAD_CPUTIME_ID) + BURNT_MS * 1000000LL;
	while (conform_clock(CLOCK_THREAD_CPUTIME_ID) < until)
		;
}

static void *worker(void *argument)
{
	int who = (int)(intptr_t)argument;
	make(who);
	pthread_barrier_wait(&made);
	/* It waits until it is its turn, and then until the main thread has looked. */
	pthread_barrier_wait(&turns[who]);
	burn();
	pthread_barrier_wait(&turns[who]);
	pthread_barrier_wait(&turns[who]);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t workers[THREADS];
	BUILD0(pthread_barrier_init(&made, NULL, THREADS));
	for (int i = 1; i < THREADS; i++) {
		BUILD0(pthread_barrier_init(&turns[i], NULL, 2));
		BUILD0(pthread_create(&workers[i], NULL, worker, (void *)(intptr_t)i));
	}
	make(0);
	pthread_barrier_wait(&made);
	conform_ready();
	conform_wait();

	for (int turn = 0; turn < THREADS; turn++) {
		int64_t before[THREADS];
		for (int i = turn; i < THREADS; i++) {
			before[i] = left_ns(timers[i]);
			EXPECT_BETWEEN("seconds left", before[i] / 1000000000, FAR_S * (i + 1) - 600, FAR_S * (i + 1));
		}
		if (turn > 0) {
			pthread_barrier_wait(&turns[turn]);
			pthread_barrier_wait(&turns[turn]);
		} else {
			burn();
		}
		EXPECT_BETWEEN("what is left of the own", before[turn] - left_ns(timers[turn]), BURNT_MS * 1000000LL,
			       FAR_S * 1000000000LL);
		/* The others have at most gone to sleep meanwhile. */
		for (int i = turn + 1; i < THREADS; i++)
			EXPECT_BETWEEN("what is left of another's", before[i] - left_ns(timers[i]), 0,
				       BURNT_MS * 1000000LL / 2);
		if (turn > 0) {
			pthread_barrier_wait(&turns[turn]);
			BUILD0(pthread_join(workers[turn], NULL));
		}
	}
	for (int i = 0; i < THREADS; i++)
		BUILD(timer_delete(timers[i]));
	conform_pass();
}
