/* No alternate signal stack: a main thread and another one without one, one that gave its own up, handlers with SA_ONSTACK. */
#include "conform.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

static sem_t built;
/* Threads count in it at the same time. */
static atomic_int handled;

static void handler(int signal)
{
	(void)signal;
	atomic_fetch_add(&handled, 1);
}

static void expect_none(const char *what)
{
	stack_t found;
	BUILD(sigaltstack(NULL, &found));
	EXPECT(what, found.ss_flags, SS_DISABLE);
	EXPECT(what, found.ss_size, 0);
}

static void *thread(void *gives_up)
{
	static char stack[64 * 1024];
	if (gives_up) {
		stack_t own = { .ss_sp = stack, .ss_size = sizeof stack };
		BUILD(sigaltstack(&own, NULL));
		stack_t none = { .ss_flags = SS_DISABLE };
		BUILD(sigaltstack(&none, NULL));
	}
	BUILD(sem_post(&built));
	conform_wait();
	expect_none("alternate stack of a thread");
	raise(SIGUSR1);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t others[2];
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
	BUILD(sigaction(SIGUSR1, &action, NULL));
	BUILD(sem_init(&built, 0, 0));
	BUILD0(pthread_create(&others[0], NULL, thread, NULL));
	BUILD0(pthread_create(&others[1], NULL, thread, &built));
	for (int i = 0; i < 2; i++)
		while (sem_wait(&built) != 0)
			continue;
	conform_ready();
	conform_wait();
	expect_none("alternate stack of the main thread");
	raise(SIGUSR1);
	BUILD0(pthread_join(others[0], NULL));
	BUILD0(pthread_join(others[1], NULL));
	EXPECT("signals handled", atomic_load(&handled), 3);
	conform_pass();
}
