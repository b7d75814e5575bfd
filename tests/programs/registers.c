/*
 * Every register of a thread that spins, and of one that sleeps in a system call: integers, flags, floating point, vectors,
 * and what is the processor's own (pointer authentication keys, segment bases).
 */
#include "registers.h"
#include <pthread.h>

volatile int registers_stop, registers_fd;
char registers_byte[8];

struct task {
	void (*run)(const void *, void *);
	struct registers loaded, stored;
};

static void *runner(void *argument)
{
	struct task *task = argument;
	struct own own;
	own_begin(&own);
	task->run(&task->loaded, &task->stored);
	own_end(&own);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	static struct task tasks[] = { { .run = registers_spin }, { .run = registers_read } };
	int ends[2];
	BUILD(pipe(ends));
	registers_fd = ends[0];
	pthread_t threads[2];
	for (unsigned i = 0; i < 2; i++) {
		registers_fill(&tasks[i].loaded, i + 1);
		BUILD0(pthread_create(&threads[i], NULL, runner, &tasks[i]));
	}
	conform_sleep_ms(50);
	conform_ready();
	conform_wait();
	registers_stop = 1;
	conform_write_all(ends[1], "r", 1);
	for (unsigned i = 0; i < 2; i++)
		BUILD0(pthread_join(threads[i], NULL));
	EXPECT("byte that the system call has read", registers_byte[0], 'r');
	registers_compare("spinning", &tasks[0].loaded, &tasks[0].stored, false);
	registers_compare("in a system call", &tasks[1].loaded, &tasks[1].stored, true);
	conform_pass();
}
