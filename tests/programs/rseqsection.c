/*
 * Restartable sequences (rseq(2)): two threads, one of them the main one, that are in a sequence which only its abort ends.
 * One that was stopped in it and went on in it without the abort would stay there for ever.
 */
#include "conform.h"
#include <pthread.h>

#if defined(__x86_64__) && defined(__has_include)
#if __has_include(<sys/rseq.h>)
#define HAVE_SEQUENCES
#endif
#endif

#ifdef HAVE_SEQUENCES
#include <sys/rseq.h>

enum { THREADS = 2, LIMIT_MS = 10 * 1000 };
static struct {
	pthread_t thread;
	volatile int left;
	volatile long aborts;
} all[THREADS];
static volatile int stop;

/* Enters the sequence; returns at its abort. */
static void be_aborted(struct rseq *area)
{
	__asm__ goto("	.pushsection __rseq_cs, \"aw\"\n"
		     "	.balign 32\n"
		     "3:	.long 0, 0\n"
		     "	.quad 1f, 2f - 1f, 4f\n"
		     "	.popsection\n"
		     "	leaq 3b(%%rip), %%rax\n"
		     "	movq %%rax, 8(%[area])\n"
		     "1:	pause\n"
		     "	jmp 1b\n"
		     "2:	ud2\n"
		     "	.pushsection __rseq_failure, \"ax\"\n"
		     "	.long 0x53053053\n"
		     "4:	jmp %l[aborted]\n"
		     "	.popsection\n"
		     :
		     : [area] "r"(area)
		     : "rax", "memory"
		     : aborted);
aborted:
	return;
}

static void *spin(void *argument)
{
	long which = (long)argument;
	struct rseq *area = (struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
	while (!stop) {
		be_aborted(area);
		all[which].aborts++;
	}
	all[which].left = 1;
	return NULL;
}

static void nothing(int signal)
{
	(void)signal;
}

static void *supervise(void *unused)
{
	(void)unused;
	while (!all[0].aborts || !all[1].aborts)
		for (int i = 0; i < THREADS; i++)
			BUILD0(pthread_kill(all[i].thread, SIGUSR1));
	conform_ready();
	conform_wait();
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		for (int tries = 0; !all[i].left; tries++) {
			if (tries == LIMIT_MS / 5)
				conform_fail("thread %d went on in its sequence without the abort", i);
			/* Its delivery is an abort. */
			BUILD0(pthread_kill(all[i].thread, SIGUSR1));
			conform_sleep_ms(5);
		}
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	if (__rseq_size == 0)
		conform_skip("the C library has registered no area for sequences");
	pthread_t supervisor;
	struct sigaction action = { .sa_handler = nothing };
	BUILD(sigaction(SIGUSR1, &action, NULL));
	all[0].thread = pthread_self();
	BUILD0(pthread_create(&all[1].thread, NULL, spin, (void *)1L));
	BUILD0(pthread_create(&supervisor, NULL, supervise, NULL));
	spin((void *)0L);
	BUILD0(pthread_join(all[1].thread, NULL));
	BUILD0(pthread_join(supervisor, NULL));
	conform_pass();
}
#else
int main(int argc, char **argv)
{
	conform_start(argc, argv);
	conform_skip("no sequence is written down here for this processor and this C library");
}
#endif
