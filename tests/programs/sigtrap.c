/* A blocked SIGTRAP that is pending: for the process, and for each of two threads, with its value. */
#include "conform.h"
#include <pthread.h>
#include <sys/syscall.h>

static pthread_barrier_t built, checked;

static void queue_to_self(int value)
{
	siginfo_t info = { .si_signo = SIGTRAP, .si_code = SI_QUEUE };
	info.si_pid = getpid();
	info.si_value.sival_int = value;
	BUILD(syscall(SYS_rt_tgsigqueueinfo, getpid(), syscall(SYS_gettid), SIGTRAP, &info));
}

static void expect_trap(const char *what, int code, int value)
{
	sigset_t set;
	siginfo_t info;
	struct timespec none = { 0, 0 };
	sigemptyset(&set);
	sigaddset(&set, SIGTRAP);
	EXPECT(what, sigtimedwait(&set, &info, &none), SIGTRAP);
	EXPECT(what, info.si_code, code);
	if (code == SI_QUEUE)
		EXPECT(what, info.si_value.sival_int, value);
}

static void *thread(void *unused)
{
	(void)unused;
	queue_to_self(11);
	pthread_barrier_wait(&built);
	conform_wait();
	expect_trap("the thread's SIGTRAP", SI_QUEUE, 11);
	pthread_barrier_wait(&checked);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	sigset_t trap;
	pthread_t other;
	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	BUILD(sigprocmask(SIG_BLOCK, &trap, NULL));
	BUILD0(pthread_barrier_init(&built, NULL, 2));
	BUILD0(pthread_barrier_init(&checked, NULL, 2));
	BUILD0(pthread_create(&other, NULL, thread, NULL));
	pthread_barrier_wait(&built);
	queue_to_self(22);
	BUILD(kill(getpid(), SIGTRAP));
	conform_ready();
	conform_wait();
	pthread_barrier_wait(&checked);
	expect_trap("the main thread's SIGTRAP", SI_QUEUE, 22);
	expect_trap("the process's SIGTRAP", SI_USER, 0);
	BUILD0(pthread_join(other, NULL));
	conform_pass();
}
