/*
 * Sleeps that were interrupted before, by a stop and SIGCONT, and go on through restart_syscall(2): with a place for the
 * rest and without one, on a clock, with poll and futex, until
 * a moment. Each returns what it would have returned.
 */
#include "conform.h"
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/syscall.h>

enum { ASKED_MS = 2500 };
static const struct timespec asked = { ASKED_MS / 1000, ASKED_MS % 1000 * 1000000 };

static void *sleeps(void *unused)
{
	struct timespec left = { 0, 0 };
	EXPECT("nanosleep", nanosleep(&asked, &left), 0);
	return unused;
}

static void *sleeps_without_rest(void *unused)
{
	EXPECT("nanosleep without a rest", nanosleep(&asked, NULL), 0);
	return unused;
}

static void *sleeps_by_clock(void *unused)
{
	struct timespec left = { 0, 0 };
	EXPECT("clock_nanosleep", clock_nanosleep(CLOCK_BOOTTIME, 0, &asked, &left), 0);
	return unused;
}

static void *polls(void *unused)
{
	EXPECT("poll", poll(NULL, 0, ASKED_MS), 0);
	return unused;
}

static void *waits(void *unused)
{
	static int word = 7;
	EXPECT_ERROR("futex", syscall(SYS_futex, &word, FUTEX_WAIT, 7, &asked, NULL, 0), ETIMEDOUT);
	return unused;
}

static void *waits_until(void *unused)
{
	static sem_t semaphore;
	struct timespec until;
	BUILD(sem_init(&semaphore, 0, 0));
	BUILD(clock_gettime(CLOCK_MONOTONIC, &until));
	until.tv_sec += asked.tv_sec;
	until.tv_nsec = 999999999;
	EXPECT_ERROR("sem_clockwait", sem_clockwait(&semaphore, CLOCK_MONOTONIC, &until), ETIMEDOUT);
	EXPECT("until then", conform_clock(CLOCK_MONOTONIC) >= until.tv_sec * 1000000000LL + until.tv_nsec, 1);
	return unused;
}

static void *(*const bodies[])(void *) = { waits_until, sleeps, sleeps_without_rest, sleeps_by_clock, polls, waits };
enum { COUNT = sizeof bodies / sizeof *bodies, WITH_A_TIME = 1 };

static void *timed(void *which)
{
	intptr_t body = (intptr_t)which;
	int64_t began = conform_clock(CLOCK_BOOTTIME);
	bodies[body](NULL);
	if (body >= WITH_A_TIME)
		EXPECT("as long as was asked", conform_clock(CLOCK_BOOTTIME) - began >= ASKED_MS * 1000000LL, 1);
	return NULL;
}

static void child(void *unused)
{
	pthread_t threads[COUNT];
	(void)unused;
	for (intptr_t i = 0; i < COUNT; i++)
		BUILD0(pthread_create(&threads[i], NULL, timed, (void *)i));
	for (int i = 0; i < COUNT; i++)
		BUILD0(pthread_join(threads[i], NULL));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t sleeper = conform_spawn(child, NULL);
	int status;
	conform_sleep_ms(200);
	BUILD(kill(sleeper, SIGSTOP));
	BUILD(waitpid(sleeper, &status, WUNTRACED));
	BUILD(kill(sleeper, SIGCONT));
	BUILD(waitpid(sleeper, &status, WCONTINUED));
	conform_sleep_ms(100);
	conform_ready();
	conform_wait();
	conform_join(sleeper);
	conform_pass();
}
