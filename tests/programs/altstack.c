/* Alternate signal stacks of threads; a thread inside of a handler on one, which returns afterwards. */
#include "conform.h"
#include <pthread.h>
#include <semaphore.h>

enum { STACK = 64 * 1024 };
static char stacks[2][STACK];
static volatile int inside, returned;

static bool on_stack(const void *address, int which)
{
	return (const char *)address >= stacks[which] && (const char *)address < stacks[which] + STACK;
}

static void handler(int signal)
{
	char here = 0;
	if (signal == SIGUSR1) {
		inside = 1;
		conform_wait();
	}
	EXPECT("handler runs on its alternate stack", on_stack(&here, signal == SIGUSR1), 1);
}

static void use_stack(int which)
{
	stack_t stack = { .ss_sp = stacks[which], .ss_size = STACK };
	BUILD(sigaltstack(&stack, NULL));
}

static void expect_stack(int which)
{
	stack_t found;
	BUILD(sigaltstack(NULL, &found));
	EXPECT("alternate stack", (char *)found.ss_sp - stacks[which], 0);
	EXPECT("size of the alternate stack", found.ss_size, STACK);
	EXPECT("flags of the alternate stack", found.ss_flags, 0);
}

static void *thread(void *unused)
{
	(void)unused;
	use_stack(1);
	raise(SIGUSR1);
	returned = 1;
	expect_stack(1);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t other;
	struct sigaction action = { .sa_handler = handler, .sa_flags = SA_ONSTACK };
	BUILD(sigaction(SIGUSR1, &action, NULL));
	BUILD(sigaction(SIGUSR2, &action, NULL));
	use_stack(0);
	BUILD0(pthread_create(&other, NULL, thread, NULL));
	while (!inside)
		conform_sleep_ms(1);
	conform_ready();
	conform_wait();
	expect_stack(0);
	raise(SIGUSR2);
	BUILD0(pthread_join(other, NULL));
	EXPECT("handler returned", returned, 1);
	conform_pass();
}
