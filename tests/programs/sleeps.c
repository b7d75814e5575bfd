/*
 * Every relative sleep in the kernel: each lasts as long as was asked, no less and not again from the start, and
 * returns what it would have returned.
 */
#include "conform.h"
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <linux/futex.h>
#include <sys/syscall.h>

enum { ASKED_MS = 3000, BEFORE_MS = 1400, EARLY_MS = 30, LATE_MS = 900 };
static const struct timespec asked = { ASKED_MS / 1000, ASKED_MS % 1000 * 1000000 };

static void sleep_nanosleep(void)
{
	struct timespec left = { 0, 0 };
	EXPECT("nanosleep", nanosleep(&asked, &left), 0);
}

static void sleep_clock_nanosleep(void)
{
	EXPECT("clock_nanosleep", clock_nanosleep(CLOCK_BOOTTIME, 0, &asked, NULL), 0);
}

static void sleep_absolute(void)
{
	struct timespec until;
	BUILD(clock_gettime(CLOCK_MONOTONIC, &until));
	until.tv_sec += asked.tv_sec;
	EXPECT("clock_nanosleep until", clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL), 0);
}

static void sleep_poll(void)
{
	EXPECT("poll", poll(NULL, 0, ASKED_MS), 0);
}

static void sleep_ppoll(void)
{
	EXPECT("ppoll", ppoll(NULL, 0, &asked, NULL), 0);
}

static void sleep_select(void)
{
	struct timeval time = { asked.tv_sec, asked.tv_nsec / 1000 };
	EXPECT("select", select(0, NULL, NULL, NULL, &time), 0);
}

static void sleep_pselect(void)
{
	EXPECT("pselect", pselect(0, NULL, NULL, NULL, &asked, NULL), 0);
}

static void sleep_epoll(void)
{
	struct epoll_event event;
	int fd = BUILD(epoll_create1(0));
	EXPECT("epoll_wait", epoll_wait(fd, &event, 1, ASKED_MS), 0);
}

static void sleep_futex(void)
{
	int word = 0;
	EXPECT_ERROR("futex wait", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &asked), ETIMEDOUT);
}

static void sleep_semaphore(void)
{
	sem_t semaphore;
	struct timespec until;
	BUILD(sem_init(&semaphore, 0, 0));
	BUILD(clock_gettime(CLOCK_MONOTONIC, &until));
	until.tv_sec += asked.tv_sec;
	EXPECT_ERROR("sem_clockwait", sem_clockwait(&semaphore, CLOCK_MONOTONIC, &until), ETIMEDOUT);
}

static void sleep_sigtimedwait(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 5);
	EXPECT_ERROR("sigtimedwait", sigtimedwait(&set, NULL, &asked), EAGAIN);
}

static void (*const sleeps[])(void) = { sleep_nanosleep, sleep_clock_nanosleep, sleep_absolute,
					sleep_poll,      sleep_ppoll,           sleep_select,
					sleep_pselect,   sleep_epoll,           sleep_futex,
					sleep_semaphore, sleep_sigtimedwait };
static const char *const names[] = { "nanosleep", "clock_nanosleep", "clock_nanosleep until",
				     "poll",      "ppoll",           "select",
				     "pselect",   "epoll_wait",      "futex wait",
				     "sem_clockwait", "sigtimedwait" };
enum { SLEEPS = sizeof sleeps / sizeof *sleeps };

/*
 * Without a time namespace the clock goes on while the job is not there, and a relative sleep does not: it may be later
 * by that much, which somebody who looks all the time finds out.
 */
static atomic_long away_ms;

static void *gauge(void *unused)
{
	(void)unused;
	enum { STEP_MS = 10, GAP_MS = 50 };
	for (int64_t last = conform_clock(CLOCK_MONOTONIC);;) {
		conform_sleep_ms(STEP_MS);
		int64_t now = conform_clock(CLOCK_MONOTONIC), passed = (now - last) / 1000000;
		if (passed > GAP_MS)
			away_ms += passed - STEP_MS;
		last = now;
	}
	return NULL;
}

static void *sleeper(void *argument)
{
	long number = (long)argument;
	int64_t start = conform_clock(CLOCK_MONOTONIC);
	sleeps[number]();
	int64_t slept = (conform_clock(CLOCK_MONOTONIC) - start) / 1000000;
	char what[64];
	snprintf(what, sizeof what, "milliseconds slept in %s", names[number]);
	EXPECT_BETWEEN(what, slept, ASKED_MS - EARLY_MS, ASKED_MS + LATE_MS + away_ms);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t threads[SLEEPS], looks;
	if (getenv("CKPTD_NAMESPACES"))
		BUILD0(pthread_create(&looks, NULL, gauge, NULL));
	for (long i = 0; i < SLEEPS; i++)
		BUILD0(pthread_create(&threads[i], NULL, sleeper, (void *)i));
	/* A sleep that begins anew after a restart would last this much too long. */
	conform_sleep_ms(BEFORE_MS);
	conform_ready();
	conform_wait();
	for (int i = 0; i < SLEEPS; i++)
		BUILD0(pthread_join(threads[i], NULL));
	conform_pass();
}
