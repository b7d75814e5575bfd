/*
 * Timers of timer_create: of every kind of notice and clock, with what is left of them, what is pending of them, and how often
 * one had expired when its signal was last taken.
 */
#include "conform.h"
#include <pthread.h>
#include <sys/syscall.h>

enum { TICK_MS = 20, FAR_S = 3600, PERIOD_S = 1000 };
static volatile sig_atomic_t ticks;
static _Atomic int calls, taken;
static _Atomic pid_t listener;
static _Atomic int stop;

static void tick(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	if (info->si_code == SI_TIMER && info->si_value.sival_int == 11)
		ticks++;
}

static void called(union sigval value)
{
	if (value.sival_int == 22)
		calls++;
}

static void *listen_for_signals(void *unused)
{
	(void)unused;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN + 2);
	listener = (pid_t)syscall(SYS_gettid);
	while (!stop) {
		struct timespec second = {1, 0};
		siginfo_t info;
		if (sigtimedwait(&set, &info, &second) == SIGRTMIN + 2 && info.si_value.sival_int == 33)
			taken++;
	}
	return NULL;
}

static timer_t make(clockid_t clock, int notify, int signal, int value)
{
	timer_t timer;
	struct sigevent event = {.sigev_notify = notify, .sigev_signo = signal};
	event.sigev_value.sival_int = value;
	if (notify == SIGEV_THREAD)
		event.sigev_notify_function = called;
	if (notify == SIGEV_THREAD_ID)
		event._sigev_un._tid = listener;
	BUILD(timer_create(clock, &event, &timer));
	return timer;
}

static void set(timer_t timer, int64_t first_ms, int64_t period_ms)
{
	struct itimerspec value = {
		.it_value = {first_ms / 1000, first_ms % 1000 * 1000000},
		.it_interval = {period_ms / 1000, period_ms % 1000 * 1000000},
	};
	BUILD(timer_settime(timer, 0, &value, NULL));
}

static void expect_left(const char *what, timer_t timer, long least, long most, long period)
{
	struct itimerspec left;
	BUILD(timer_gettime(timer, &left));
	EXPECT_BETWEEN(what, left.it_value.tv_sec, least, most);
	EXPECT(what, left.it_interval.tv_sec, period);
}

static void expect_signal(const char *what, int signal, int value, bool overruns)
{
	siginfo_t info;
	sigset_t set;
	struct timespec none = {0, 0};
	sigemptyset(&set);
	sigaddset(&set, signal);
	EXPECT(what, sigtimedwait(&set, &info, &none), signal);
	EXPECT(what, info.si_code, SI_TIMER);
	EXPECT(what, info.si_value.sival_int, value);
	if (!overruns)
		EXPECT("expirations besides", info.si_overrun, 0);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	sigset_t blocked;
	sigemptyset(&blocked);
	for (int i = 2; i <= 5; i++)
		sigaddset(&blocked, SIGRTMIN + i);
	BUILD0(pthread_sigmask(SIG_BLOCK, &blocked, NULL));
	pthread_t other;
	BUILD0(pthread_create(&other, NULL, listen_for_signals, NULL));
	while (!listener)
		conform_sleep_ms(1);

	/* Numbers with gaps. */
	for (int i = 0; i < 5; i++)
		BUILD(timer_delete(make(CLOCK_MONOTONIC, SIGEV_NONE, 0, 0)));
	struct sigaction action = {.sa_sigaction = tick, .sa_flags = SA_RESTART | SA_SIGINFO};
	BUILD(sigaction(SIGRTMIN + 1, &action, NULL));
	timer_t ticking = make(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN + 1, 11);
	set(ticking, TICK_MS, TICK_MS);
	timer_t calling = make(CLOCK_MONOTONIC, SIGEV_THREAD, 0, 22);
	set(calling, TICK_MS, TICK_MS);
	timer_t directed = make(CLOCK_REALTIME, SIGEV_THREAD_ID, SIGRTMIN + 2, 33);
	set(directed, TICK_MS, TICK_MS);
	BUILD(timer_delete(make(CLOCK_MONOTONIC, SIGEV_NONE, 0, 0)));
	timer_t distant = make(CLOCK_REALTIME, SIGEV_NONE, 0, 0);
	set(distant, FAR_S * 1000, FAR_S * 500);
	timer_t unarmed = make(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN + 1, 44);
	timer_t cpu = make(CLOCK_PROCESS_CPUTIME_ID, SIGEV_SIGNAL, SIGRTMIN + 1, 55);
	set(cpu, FAR_S * 1000, 0);
	clockid_t others;
	BUILD0(pthread_getcpuclockid(other, &others));
	timer_t cpu_of_thread = make(others, SIGEV_SIGNAL, SIGRTMIN + 1, 66);
	set(cpu_of_thread, FAR_S * 1000, FAR_S * 1000);
	timer_t once = make(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN + 3, 77);
	set(once, 1, 0);
	timer_t again = make(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN + 4, 88);
	set(again, 1, TICK_MS);
	/* Three expirations lie back, the fourth is told. */
	timer_t overrun = make(CLOCK_REALTIME, SIGEV_SIGNAL, SIGRTMIN + 5, 99);
	struct itimerspec back = {.it_interval = {PERIOD_S, 0}};
	BUILD(clock_gettime(CLOCK_REALTIME, &back.it_value));
	back.it_value.tv_sec -= 3 * PERIOD_S + PERIOD_S / 2;
	BUILD(timer_settime(overrun, TIMER_ABSTIME, &back, NULL));
	conform_sleep_ms(10);
	expect_signal("told of", SIGRTMIN + 5, 99, true);
	EXPECT("overrun before", timer_getoverrun(overrun), 3);

	conform_ready();
	conform_wait();

	expect_left("a distant one", distant, FAR_S - 900, FAR_S, FAR_S / 2);
	expect_left("one that is not armed", unarmed, 0, 0, 0);
	expect_left("one of CPU time", cpu, FAR_S - 60, FAR_S, 0);
	expect_left("one of another thread's CPU time", cpu_of_thread, FAR_S - 60, FAR_S, FAR_S);
	EXPECT("overrun", timer_getoverrun(overrun), 3);
	expect_left("one that has told of it", overrun, PERIOD_S / 2 - 400, PERIOD_S / 2, PERIOD_S);
	expect_signal("a single expiration", SIGRTMIN + 3, 77, false);
	expect_left("which was the last", once, 0, 0, 0);
	expect_signal("one of many", SIGRTMIN + 4, 88, true);
	sigset_t pending;
	BUILD(timer_delete(again));
	BUILD(sigpending(&pending));
	EXPECT("another of the single expiration", sigismember(&pending, SIGRTMIN + 3), 0);
	EXPECT("a signal that was taken", sigismember(&pending, SIGRTMIN + 5), 0);

	int before[] = {ticks, calls, taken};
	conform_sleep_ms(TICK_MS * 20);
	int after[] = {ticks, calls, taken};
	for (int i = 0; i < 3; i++)
		EXPECT_BETWEEN("notices", after[i] - before[i], 3, 1000);
	timer_t fresh = make(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN + 3, 111);
	set(fresh, 1, 0);
	conform_sleep_ms(50);
	expect_signal("a new one", SIGRTMIN + 3, 111, false);
	timer_t all[] = {ticking, directed, distant, unarmed, cpu, cpu_of_thread, once, overrun, fresh};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		BUILD(timer_delete(all[i]));
	EXPECT_ERROR("one that was deleted", timer_gettime(ticking, &back), EINVAL);
	stop = 1;
	BUILD0(pthread_join(other, NULL));
	conform_pass();
}
