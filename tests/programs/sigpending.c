/* Pending signals of the process and of single threads, with their siginfo and order. */
#include "conform.h"
#include <pthread.h>
#include <sys/syscall.h>

enum { QUEUED = 5 };
static pthread_barrier_t built, checked;

static void expect_signal(const char *what, int signal, int code, int value)
{
	sigset_t set;
	siginfo_t info;
	struct timespec none = { 0, 0 };
	sigemptyset(&set);
	sigaddset(&set, signal);
	EXPECT(what, sigtimedwait(&set, &info, &none), signal);
	EXPECT(what, info.si_code, code);
	if (code == SI_QUEUE)
		EXPECT(what, info.si_value.sival_int, value);
	if (code != SI_KERNEL)
		EXPECT("sender", info.si_pid, getpid());
}

static void expect_none(const char *what)
{
	sigset_t pending;
	BUILD(sigpending(&pending));
	for (int s = 1; s <= 64; s++)
		EXPECT(what, sigismember(&pending, s) == 1 ? s : 0, 0);
}

static void queue_to_self(int signal, int value)
{
	siginfo_t info = { .si_signo = signal, .si_code = SI_QUEUE };
	info.si_pid = getpid();
	info.si_uid = getuid();
	info.si_value.sival_int = value;
	BUILD(syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), signal, &info));
}

static void *thread(void *unused)
{
	(void)unused;
	for (int i = 0; i < QUEUED; i++)
		queue_to_self(SIGRTMIN + 3, 300 + i);
	/* Kernels differ in the code of a signal to a thread: ask this one. */
	siginfo_t sample;
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	BUILD0(pthread_kill(pthread_self(), SIGUSR2));
	BUILD(sigwaitinfo(&set, &sample));
	BUILD0(pthread_kill(pthread_self(), SIGUSR2));
	pthread_barrier_wait(&built);
	conform_wait();
	for (int i = 0; i < QUEUED; i++)
		expect_signal("thread's queued signal", SIGRTMIN + 3, SI_QUEUE, 300 + i);
	expect_signal("thread's SIGUSR2", SIGUSR2, sample.si_code, 0);
	pthread_barrier_wait(&checked);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	sigset_t all;
	pthread_t other;
	sigfillset(&all);
	BUILD(sigprocmask(SIG_BLOCK, &all, NULL));
	BUILD0(pthread_barrier_init(&built, NULL, 2));
	BUILD0(pthread_barrier_init(&checked, NULL, 2));
	BUILD0(pthread_create(&other, NULL, thread, NULL));
	pthread_barrier_wait(&built);
	for (int i = 0; i < QUEUED; i++)
		BUILD(sigqueue(getpid(), SIGRTMIN + 2, (union sigval){ .sival_int = 200 + i }));
	BUILD(kill(getpid(), SIGUSR1));
	BUILD(sigqueue(getpid(), SIGTERM, (union sigval){ .sival_int = 77 }));
	queue_to_self(SIGRTMIN + 3, 400);
	conform_ready();
	conform_wait();
	pthread_barrier_wait(&checked);
	for (int i = 0; i < QUEUED; i++)
		expect_signal("process's queued signal", SIGRTMIN + 2, SI_QUEUE, 200 + i);
	expect_signal("process's SIGUSR1", SIGUSR1, SI_USER, 0);
	expect_signal("process's SIGTERM", SIGTERM, SI_QUEUE, 77);
	expect_signal("main thread's queued signal", SIGRTMIN + 3, SI_QUEUE, 400);
	expect_none("signal pending that nobody sent");
	BUILD0(pthread_join(other, NULL));
	conform_pass();
}
