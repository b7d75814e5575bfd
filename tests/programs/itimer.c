/* Interval timers: real, virtual and profiling; ticking ones go on, a distant one keeps what is left of it. */
#include "conform.h"
#include <sys/time.h>

enum { TICK_US = 20000, FAR_S = 3600 };
static volatile sig_atomic_t ticks;

static void tick(int signal) { (void)signal; ticks++; }

static void check_far(const char *what, int timer)
{
	struct itimerval left;
	BUILD(getitimer(timer, &left));
	EXPECT_BETWEEN(what, left.it_value.tv_sec, FAR_S - 60, FAR_S);
	EXPECT(what, left.it_interval.tv_sec, FAR_S / 2);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct sigaction action = { .sa_handler = tick, .sa_flags = SA_RESTART };
	struct itimerval fast = { { 0, TICK_US }, { 0, TICK_US } };
	struct itimerval far = { { FAR_S / 2, 0 }, { FAR_S, 0 } };
	BUILD(sigaction(SIGALRM, &action, NULL));
	BUILD(setitimer(ITIMER_REAL, &fast, NULL));
	BUILD(setitimer(ITIMER_VIRTUAL, &far, NULL));
	BUILD(setitimer(ITIMER_PROF, &far, NULL));
	conform_ready();
	conform_wait();
	check_far("virtual timer", ITIMER_VIRTUAL);
	check_far("profiling timer", ITIMER_PROF);
	int before = ticks;
	int64_t start = conform_clock(CLOCK_MONOTONIC);
	conform_sleep_ms(400);
	int64_t passed = (conform_clock(CLOCK_MONOTONIC) - start) / 1000;
	EXPECT_BETWEEN("ticks of the real timer", ticks - before, passed / TICK_US / 2, passed / TICK_US + 2);
	conform_pass();
}
