/* Threads that count, allocate, and play ping-pong over futexes while checkpoints are taken. */
#include "conform.h"
#include <pthread.h>

enum { COUNTERS = 3 };
static volatile int stop;
static long counts[COUNTERS], local[COUNTERS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
static long balls;

static void *counter(void *argument)
{
	long number = (long)argument;
	while (!stop) {
		char *block = malloc(5000);
		memset(block, (int)number, 5000);
		EXPECT("byte just written", block[4999], number);
		free(block);
		__atomic_add_fetch(&counts[number], 1, __ATOMIC_RELAXED);
		local[number]++;
		conform_sleep_ms(local[number] % 50 == 0);
	}
	return NULL;
}

static void *player(void *argument)
{
	long side = (long)argument;
	pthread_mutex_lock(&mutex);
	while (!stop || balls % 2 != 0 || side == 0) {
		while (balls % 2 != side && !stop)
			pthread_cond_wait(&condition, &mutex);
		if (stop)
			break;
		balls++;
		pthread_cond_broadcast(&condition);
	}
	pthread_cond_broadcast(&condition);
	pthread_mutex_unlock(&mutex);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t counters[COUNTERS], players[2];
	for (long i = 0; i < COUNTERS; i++)
		BUILD0(pthread_create(&counters[i], NULL, counter, (void *)i));
	for (long i = 0; i < 2; i++)
		BUILD0(pthread_create(&players[i], NULL, player, (void *)i));
	conform_sleep_ms(20);
	conform_ready();
	conform_wait();
	/* A machine under load may take its time. */
	long before = __atomic_load_n(&counts[0], __ATOMIC_RELAXED);
	for (int i = 0; i < 3000 && __atomic_load_n(&counts[0], __ATOMIC_RELAXED) == before; i++)
		conform_sleep_ms(10);
	pthread_mutex_lock(&mutex);
	long thrown = balls;
	pthread_mutex_unlock(&mutex);
	pthread_mutex_lock(&mutex);
	for (int i = 0; i < 3000 && balls == thrown; i++) {
		pthread_mutex_unlock(&mutex);
		conform_sleep_ms(10);
		pthread_mutex_lock(&mutex);
	}
	stop = 1;
	EXPECT("ping-pong goes on", balls > thrown, 1);
	pthread_cond_broadcast(&condition);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < COUNTERS; i++) {
		BUILD0(pthread_join(counters[i], NULL));
		EXPECT("two counts of the same turns", counts[i], local[i]);
	}
	EXPECT("counting goes on", counts[0] > before, 1);
	for (int i = 0; i < 2; i++)
		BUILD0(pthread_join(players[i], NULL));
	conform_pass();
}
