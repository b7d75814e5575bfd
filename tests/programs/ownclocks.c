/*
 * Clocks of a time namespace of a process's own go on where they were, as do those of its parent, which is not in it, and
 * what waits for a moment of them: a descriptor of a timer, a POSIX timer, sleeps and a futex of threads.
 * conform: pause=2500
 */
#include "clocks.h"
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

enum { MOST_JUMP_MS = 2000, LATE_MS = 1500, WAIT_MS = 400 };
static const clockid_t clocks[] = { CLOCK_MONOTONIC, CLOCK_BOOTTIME };
static int64_t last[2];

static void look(void *unused)
{
	(void)unused;
	for (int i = 0; i < 2; i++) {
		int64_t now = conform_clock(clocks[i]);
		EXPECT_BETWEEN("step of a clock in ms", (now - last[i]) / 1000000, 0, MOST_JUMP_MS);
		if (now < last[i])
			conform_fail("clock %d went back", (int)clocks[i]);
		last[i] = now;
	}
}

static struct timespec at(int64_t moment)
{
	return (struct timespec){ .tv_sec = moment / SECOND, .tv_nsec = moment % SECOND };
}

static int64_t now_and(int milliseconds)
{
	return conform_clock(CLOCK_MONOTONIC) + milliseconds * 1000000LL;
}

static int64_t woken[3], deadline;
static int futex;

/* Waits for one moment again and again until the program goes on, and then once more. */
static void *sleeper(void *which)
{
	int how = *(int *)which;
	bool last_round = false;
	for (;;) {
		int64_t moment = now_and(WAIT_MS);
		struct timespec until = at(moment), rest = { .tv_nsec = WAIT_MS * 1000000L };
		if (how == 0) {
			while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
				;
		} else if (how == 1) {
			while (clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, &rest) == EINTR)
				;
		} else {
			while (syscall(SYS_futex, &futex, FUTEX_WAIT_BITSET, 0, &until, NULL, FUTEX_BITSET_MATCH_ANY) != 0 &&
			       errno == EINTR)
				;
		}
		int64_t now = conform_clock(CLOCK_MONOTONIC);
		EXPECT_BETWEEN(how == 0 ? "late by ms" : how == 1 ? "relative, late by ms" : "futex, late by ms",
			       (now - moment) / 1000000, 0, LATE_MS);
		if (last_round)
			break;
		last_round = conform_gone();
	}
	woken[how] = 1;
	return NULL;
}

static void inside(void *unused)
{
	(void)unused;
	pthread_t threads[3];
	int which[3] = { 0, 1, 2 };
	int64_t jump = conform_clock(CLOCK_MONOTONIC) - last[0];
	EXPECT_BETWEEN("clock ahead of the parent's in s", jump / SECOND, AHEAD_MONOTONIC, AHEAD_MONOTONIC + 10);
	jump = conform_clock(CLOCK_BOOTTIME) - last[1];
	EXPECT_BETWEEN("clock ahead of the parent's in s", jump / SECOND, AHEAD_BOOTTIME, AHEAD_BOOTTIME + 10);
	for (int i = 0; i < 2; i++)
		last[i] = conform_clock(clocks[i]);
	int far = (int)BUILD(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC));
	timer_t timer;
	struct sigevent none = { .sigev_notify = SIGEV_NONE };
	BUILD(timer_create(CLOCK_BOOTTIME, &none, &timer));
	deadline = conform_clock(CLOCK_MONOTONIC) + 1000 * SECOND;
	struct itimerspec fires = { .it_value = at(deadline) };
	BUILD(timerfd_settime(far, TFD_TIMER_ABSTIME, &fires, NULL));
	int64_t boot_deadline = conform_clock(CLOCK_BOOTTIME) + 2000 * SECOND;
	fires.it_value = at(boot_deadline);
	BUILD(timer_settime(timer, TIMER_ABSTIME, &fires, NULL));
	for (int i = 0; i < 3; i++)
		BUILD0(pthread_create(&threads[i], NULL, sleeper, &which[i]));
	conform_mark("inside");
	conform_wait_with(look, NULL);
	look(NULL);
	BUILD(timerfd_gettime(far, &fires));
	int64_t left = fires.it_value.tv_sec * SECOND + fires.it_value.tv_nsec;
	int64_t off = left - (deadline - conform_clock(CLOCK_MONOTONIC));
	EXPECT_BETWEEN("timer's descriptor is off by ms", off / 1000000, -LATE_MS, LATE_MS);
	BUILD(timer_gettime(timer, &fires));
	left = fires.it_value.tv_sec * SECOND + fires.it_value.tv_nsec;
	off = left - (boot_deadline - conform_clock(CLOCK_BOOTTIME));
	EXPECT_BETWEEN("POSIX timer is off by ms", off / 1000000, -LATE_MS, LATE_MS);
	for (int i = 0; i < 3; i++) {
		BUILD0(pthread_join(threads[i], NULL));
		EXPECT("thread has woken", woken[i], 1);
	}
	char own[64], children[64];
	namespace_name("time", own, sizeof own);
	namespace_name("time_for_children", children, sizeof children);
	EXPECT_TEXT("namespace of children", children, own);
	expect_ahead("clocks inside", AHEAD_MONOTONIC * SECOND, AHEAD_BOOTTIME * SECOND);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	if (geteuid() != 0)
		become_inside(0, 0);
	new_clocks(AHEAD_MONOTONIC * SECOND, AHEAD_BOOTTIME * SECOND);
	for (int i = 0; i < 2; i++)
		last[i] = conform_clock(clocks[i]);
	pid_t child = conform_spawn(inside, NULL);
	conform_await("inside");
	conform_ready();
	conform_wait_with(look, NULL);
	look(NULL);
	conform_join(child);
	conform_pass();
}
