/* Each thread's own signal mask, and a thread in sigsuspend under a temporary one. */
#include "conform.h"
#include <pthread.h>

enum { THREADS = 6 };
static pthread_barrier_t built;
static volatile sig_atomic_t hits;

static void count(int signal) { (void)signal; hits++; }

static void *thread(void *argument)
{
	int number = (int)(long)argument;
	sigset_t mask, found;
	sigemptyset(&mask);
	sigaddset(&mask, SIGUSR1);
	for (int s = 34; s <= 64; s++)
		if (s % THREADS == number)
			sigaddset(&mask, s);
	BUILD0(pthread_sigmask(SIG_SETMASK, &mask, NULL));
	pthread_barrier_wait(&built);
	conform_wait();
	BUILD0(pthread_sigmask(SIG_SETMASK, NULL, &found));
	for (int s = 1; s <= 64; s++)
		if (s != 32 && s != 33)
			EXPECT("signal in a thread's mask", sigismember(&found, s), sigismember(&mask, s));
	return NULL;
}

static void *suspended(void *unused)
{
	(void)unused;
	sigset_t blocked, temporary, found;
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGUSR1);
	sigaddset(&blocked, SIGUSR2);
	BUILD0(pthread_sigmask(SIG_SETMASK, &blocked, NULL));
	sigfillset(&temporary);
	sigdelset(&temporary, SIGUSR1);
	pthread_barrier_wait(&built);
	EXPECT_ERROR("sigsuspend", sigsuspend(&temporary), EINTR);
	EXPECT("times the handler ran", hits, 1);
	BUILD0(pthread_sigmask(SIG_SETMASK, NULL, &found));
	EXPECT("SIGUSR1 blocked after sigsuspend", sigismember(&found, SIGUSR1), 1);
	EXPECT("SIGUSR2 blocked after sigsuspend", sigismember(&found, SIGUSR2), 1);
	EXPECT("SIGHUP blocked after sigsuspend", sigismember(&found, SIGHUP), 0);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t threads[THREADS], waiter;
	struct sigaction action = { .sa_handler = count };
	BUILD(sigaction(SIGUSR1, &action, NULL));
	BUILD0(pthread_barrier_init(&built, NULL, THREADS + 2));
	for (long i = 0; i < THREADS; i++)
		BUILD0(pthread_create(&threads[i], NULL, thread, (void *)i));
	BUILD0(pthread_create(&waiter, NULL, suspended, NULL));
	pthread_barrier_wait(&built);
	conform_sleep_ms(20);
	conform_ready();
	conform_wait();
	EXPECT("times the handler ran before its signal", hits, 0);
	BUILD0(pthread_kill(waiter, SIGUSR1));
	BUILD0(pthread_join(waiter, NULL));
	for (int i = 0; i < THREADS; i++)
		BUILD0(pthread_join(threads[i], NULL));
	conform_pass();
}
