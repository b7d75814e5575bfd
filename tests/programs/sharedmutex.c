/* Process-shared mutex, condition and read-write lock between two processes, one waiting in each. */
#include "conform.h"
#include <pthread.h>

struct shared {
	pthread_mutex_t mutex, held;
	pthread_cond_t condition;
	pthread_rwlock_t lock;
	int turn, entered;
};
static struct shared *shared;

static void child_waits(void *unused)
{
	(void)unused;
	BUILD0(pthread_mutex_lock(&shared->mutex));
	conform_mark("waiting");
	while (shared->turn == 0)
		BUILD0(pthread_cond_wait(&shared->condition, &shared->mutex));
	shared->turn = 2;
	BUILD0(pthread_cond_broadcast(&shared->condition));
	BUILD0(pthread_mutex_unlock(&shared->mutex));
}

static void child_blocks(void *unused)
{
	(void)unused;
	conform_mark("blocking");
	BUILD0(pthread_mutex_lock(&shared->held));
	__atomic_store_n(&shared->entered, 1, __ATOMIC_RELEASE);
	BUILD0(pthread_mutex_unlock(&shared->held));
	BUILD0(pthread_rwlock_wrlock(&shared->lock));
	BUILD0(pthread_rwlock_unlock(&shared->lock));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_mutexattr_t mutex;
	pthread_condattr_t condition;
	pthread_rwlockattr_t lock;
	shared = conform_map(sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, -1);
	BUILD0(pthread_mutexattr_init(&mutex));
	BUILD0(pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED));
	BUILD0(pthread_condattr_init(&condition));
	BUILD0(pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED));
	BUILD0(pthread_rwlockattr_init(&lock));
	BUILD0(pthread_rwlockattr_setpshared(&lock, PTHREAD_PROCESS_SHARED));
	BUILD0(pthread_mutex_init(&shared->mutex, &mutex));
	BUILD0(pthread_mutex_init(&shared->held, &mutex));
	BUILD0(pthread_cond_init(&shared->condition, &condition));
	BUILD0(pthread_rwlock_init(&shared->lock, &lock));
	BUILD0(pthread_mutex_lock(&shared->held));
	BUILD0(pthread_rwlock_rdlock(&shared->lock));
	pid_t waits = conform_spawn(child_waits, NULL), blocks = conform_spawn(child_blocks, NULL);
	conform_await("waiting");
	conform_await("blocking");
	conform_sleep_ms(20);
	conform_ready();
	conform_wait();
	EXPECT("a held mutex kept the child out", shared->entered, 0);
	BUILD0(pthread_mutex_unlock(&shared->held));
	BUILD0(pthread_mutex_lock(&shared->mutex));
	shared->turn = 1;
	BUILD0(pthread_cond_broadcast(&shared->condition));
	while (shared->turn != 2)
		BUILD0(pthread_cond_wait(&shared->condition, &shared->mutex));
	BUILD0(pthread_mutex_unlock(&shared->mutex));
	BUILD0(pthread_rwlock_unlock(&shared->lock));
	conform_join(waits);
	conform_join(blocks);
	conform_pass();
}
