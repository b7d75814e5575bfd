/*
 * Pending signals for which the queue had no room (RLIMIT_SIGPENDING): they have no siginfo, and are pending all the same, for
 * the process or for one thread.
 */
#include "conform.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static pthread_barrier_t built, checked;

static int taken(int signal)
{
	sigset_t set;
	struct timespec none = { 0, 0 };
	sigemptyset(&set);
	sigaddset(&set, signal);
	return sigtimedwait(&set, NULL, &none);
}

static void *thread(void *unused)
{
	BUILD(syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), SIGUSR2));
	pthread_barrier_wait(&built);
	pthread_barrier_wait(&checked);
	EXPECT("signal of a thread", taken(SIGUSR2), SIGUSR2);
	return unused;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	enum { QUEUED = 3 };
	struct rlimit none = { 0, 0 };
	pthread_t other;
	sigset_t all;
	sigfillset(&all);
	BUILD(sigprocmask(SIG_BLOCK, &all, NULL));
	for (int i = 0; i < QUEUED; i++)
		BUILD(sigqueue(getpid(), SIGRTMIN + 4, (union sigval){ .sival_int = i }));
	none.rlim_max = 100;
	BUILD(setrlimit(RLIMIT_SIGPENDING, &none));
	BUILD0(pthread_barrier_init(&built, NULL, 2));
	BUILD0(pthread_barrier_init(&checked, NULL, 2));
	BUILD0(pthread_create(&other, NULL, thread, NULL));
	pthread_barrier_wait(&built);
	EXPECT_ERROR("one more in the queue", sigqueue(getpid(), SIGRTMIN + 4, (union sigval){ 0 }), EAGAIN);
	const int sent[] = { SIGTERM, SIGHUP, SIGRTMIN + 2, SIGRTMIN + 6 };
	for (size_t i = 0; i < sizeof sent / sizeof *sent; i++)
		BUILD(kill(getpid(), sent[i]));
	BUILD(raise(SIGUSR1));
	conform_ready();
	conform_wait();
	pthread_barrier_wait(&checked);
	BUILD0(pthread_join(other, NULL));
	for (size_t i = 0; i < sizeof sent / sizeof *sent; i++)
		EXPECT("signal of the process", taken(sent[i]), sent[i]);
	EXPECT("signal of the first thread", taken(SIGUSR1), SIGUSR1);
	for (int i = 0; i < QUEUED; i++)
		EXPECT("queued signal", taken(SIGRTMIN + 4), SIGRTMIN + 4);
	EXPECT("no more", taken(SIGRTMIN + 4), -1);
	sigset_t left;
	BUILD(sigpending(&left));
	for (int signal = 1; signal <= 64; signal++)
		EXPECT("signal that nobody sent", sigismember(&left, signal) == 1 ? signal : 0, 0);
	conform_pass();
}
