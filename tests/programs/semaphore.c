/* POSIX semaphores: unnamed between processes, and named ones; counts, and a process that waits in each. */
#include "conform.h"
#include <semaphore.h>

static sem_t *unnamed, *named;

static void waits(void *unused)
{
	(void)unused;
	conform_mark("waiting");
	BUILD(sem_wait(unnamed));
	BUILD(sem_wait(named));
	BUILD(sem_wait(named));
	BUILD(sem_wait(named));
	BUILD(sem_wait(named));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int value = -1;
	char name[256];
	snprintf(name, sizeof name, "/%s", conform_unique());
	unnamed = conform_map(2 * sizeof *unnamed, PROT_READ | PROT_WRITE, MAP_SHARED, -1);
	BUILD(sem_init(unnamed, 1, 0));
	BUILD(sem_init(unnamed + 1, 1, 41));
	named = sem_open(name, O_CREAT | O_EXCL, 0600, 3);
	if (named == SEM_FAILED)
		conform_fail("sem_open: %s", strerror(errno));
	pid_t child = conform_spawn(waits, NULL);
	conform_await("waiting");
	conform_sleep_ms(10);
	conform_ready();
	conform_wait();
	BUILD(sem_getvalue(unnamed + 1, &value));
	EXPECT("count of an unnamed semaphore", value, 41);
	BUILD(sem_getvalue(named, &value));
	EXPECT("count of a named semaphore", value, 3);
	BUILD(sem_post(unnamed));
	sem_t *again = sem_open(name, 0);
	sem_unlink(name);
	if (again == SEM_FAILED)
		conform_fail("sem_open after: %s", strerror(errno));
	BUILD(sem_post(again));
	conform_join(child);
	BUILD(sem_getvalue(named, &value));
	EXPECT("count of the named semaphore at the end", value, 0);
	conform_pass();
}
