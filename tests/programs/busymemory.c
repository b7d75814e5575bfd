/* Memory is written, mapped, unmapped and protected by several threads while checkpoints are taken. */
#include "conform.h"
#include <pthread.h>

enum { THREADS = 3, PAGE = CONFORM_PAGE, SIZE = 64 * PAGE };
static volatile int stop;

static void *worker(void *argument)
{
	unsigned seed = (unsigned)(long)argument;
	char *kept = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	conform_fill(kept, SIZE, seed);
	while (!stop) {
		char *map = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
		conform_fill(map, SIZE, ++seed);
		BUILD(mprotect(map, PAGE, PROT_READ));
		conform_verify("memory just written", map, SIZE, seed);
		conform_verify("memory kept from the turn before", kept, SIZE, seed - 1);
		BUILD(munmap(kept, SIZE));
		kept = map;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t threads[THREADS];
	for (long i = 0; i < THREADS; i++)
		BUILD0(pthread_create(&threads[i], NULL, worker, (void *)(i * 1000000)));
	conform_ready();
	conform_wait();
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		BUILD0(pthread_join(threads[i], NULL));
	conform_pass();
}
