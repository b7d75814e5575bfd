/* Threads that do nothing but ask for the time, without entering the kernel: each answer is between two of the kernel's. */
#include "conform.h"
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/time.h>

enum { THREADS = 3 };
static volatile int stop;
static long asked[THREADS];

static int64_t kernels(clockid_t clock)
{
	struct timespec now;
	BUILD0(syscall(SYS_clock_gettime, clock, &now));
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void *asker(void *argument)
{
	long number = (long)argument;
	int64_t last = 0;
	while (!stop) {
		int64_t before = kernels(CLOCK_MONOTONIC);
		int64_t now = conform_clock(CLOCK_MONOTONIC);
		int64_t after = kernels(CLOCK_MONOTONIC);
		EXPECT_BETWEEN("monotonic clock", now, before, after);
		EXPECT("a clock that never goes back", now >= last, 1);
		last = now;
		before = kernels(CLOCK_REALTIME) / 1000;
		struct timeval day;
		gettimeofday(&day, NULL);
		now = (int64_t)day.tv_sec * 1000000 + day.tv_usec;
		EXPECT_BETWEEN("time of day", now, before, kernels(CLOCK_REALTIME) / 1000);
		/* Most of the time in code that the kernel has given. */
		for (int i = 0; i < 200; i++)
			conform_clock(CLOCK_MONOTONIC);
		EXPECT("a processor's number", sched_getcpu() >= 0, 1);
		__atomic_add_fetch(&asked[number], 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t threads[THREADS];
	for (long i = 0; i < THREADS; i++)
		BUILD0(pthread_create(&threads[i], NULL, asker, (void *)i));
	conform_sleep_ms(20);
	conform_ready();
	conform_wait();
	for (int i = 0; i < THREADS; i++) {
		/* A machine under load may take its time. */
		long before = __atomic_load_n(&asked[i], __ATOMIC_RELAXED);
		for (int j = 0; j < 3000 && __atomic_load_n(&asked[i], __ATOMIC_RELAXED) == before; j++)
			conform_sleep_ms(10);
		EXPECT("asking goes on", asked[i] > before, 1);
	}
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		BUILD0(pthread_join(threads[i], NULL));
	conform_pass();
}
