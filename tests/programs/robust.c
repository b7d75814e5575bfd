/* Robust mutexes: a thread and a process that hold one die after the restart, and the next owner is told. */
#include "conform.h"
#include <pthread.h>
#include <semaphore.h>

struct shared {
	pthread_mutex_t of_thread, of_process;
	sem_t held;
};
static struct shared *shared;

static void make(pthread_mutex_t *mutex)
{
	pthread_mutexattr_t attributes;
	BUILD0(pthread_mutexattr_init(&attributes));
	BUILD0(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST));
	BUILD0(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED));
	BUILD0(pthread_mutex_init(mutex, &attributes));
}

static void *dies_with_mutex(void *unused)
{
	BUILD0(pthread_mutex_lock(&shared->of_thread));
	sem_post(&shared->held);
	conform_wait();
	return unused;
}

static void exits_with_mutex(void *unused)
{
	(void)unused;
	BUILD0(pthread_mutex_lock(&shared->of_process));
	conform_mark("held");
	conform_wait();
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t thread;
	shared = conform_map(sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, -1);
	make(&shared->of_thread);
	make(&shared->of_process);
	BUILD(sem_init(&shared->held, 0, 0));
	pid_t child = conform_spawn(exits_with_mutex, NULL);
	conform_await("held");
	BUILD0(pthread_create(&thread, NULL, dies_with_mutex, NULL));
	BUILD(sem_wait(&shared->held));
	EXPECT("mutex of a living thread", pthread_mutex_trylock(&shared->of_thread), EBUSY);
	conform_ready();
	conform_wait();
	EXPECT("mutex of a dead thread", pthread_mutex_lock(&shared->of_thread), EOWNERDEAD);
	EXPECT("mutex of a dead process", pthread_mutex_lock(&shared->of_process), EOWNERDEAD);
	BUILD0(pthread_mutex_consistent(&shared->of_thread));
	BUILD0(pthread_mutex_unlock(&shared->of_thread));
	BUILD0(pthread_mutex_lock(&shared->of_thread));
	BUILD0(pthread_join(thread, NULL));
	conform_join(child);
	conform_pass();
}
