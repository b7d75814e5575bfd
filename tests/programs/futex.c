/* Threads that wait in futexes: woken, handed a mutex, and let through a condition and a barrier afterwards. */
#include "conform.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>

enum { WAITERS = 8 };
static int word;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static int signalled, woken;

static void *waits_on_word(void *unused)
{
	while (__atomic_load_n(&word, __ATOMIC_ACQUIRE) == 0)
		syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL);
	__atomic_add_fetch(&woken, 1, __ATOMIC_RELEASE);
	return unused;
}

static void *waits_on_condition(void *unused)
{
	pthread_mutex_lock(&mutex);
	while (!signalled)
		pthread_cond_wait(&condition, &mutex);
	pthread_mutex_unlock(&mutex);
	return unused;
}

static void *waits_on_mutex(void *unused)
{
	pthread_mutex_lock(&held);
	pthread_mutex_unlock(&held);
	return unused;
}

static void *waits_on_barrier(void *unused)
{
	pthread_barrier_wait(&barrier);
	return unused;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	void *(*const bodies[])(void *) = { waits_on_word, waits_on_condition, waits_on_mutex, waits_on_barrier };
	pthread_t threads[4][WAITERS];
	BUILD0(pthread_barrier_init(&barrier, NULL, WAITERS + 1));
	BUILD0(pthread_mutex_lock(&held));
	for (int kind = 0; kind < 4; kind++)
		for (int i = 0; i < WAITERS; i++)
			BUILD0(pthread_create(&threads[kind][i], NULL, bodies[kind], NULL));
	conform_sleep_ms(30);
	conform_ready();
	conform_wait();
	EXPECT("waiters woken too early", woken, 0);
	__atomic_store_n(&word, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, WAITERS, NULL);
	BUILD0(pthread_mutex_lock(&mutex));
	signalled = 1;
	BUILD0(pthread_cond_broadcast(&condition));
	BUILD0(pthread_mutex_unlock(&mutex));
	BUILD0(pthread_mutex_unlock(&held));
	pthread_barrier_wait(&barrier);
	for (int kind = 0; kind < 4; kind++)
		for (int i = 0; i < WAITERS; i++)
			BUILD0(pthread_join(threads[kind][i], NULL));
	EXPECT("waiters woken", woken, WAITERS);
	conform_pass();
}
