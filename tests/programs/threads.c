/* 220 threads: their ids, names, thread-local memory and stacks. */
#include "conform.h"
#include <pthread.h>
#include <sys/syscall.h>

enum { THREADS = 220, STACK = 256 * 1024, DEPTH = 2048 };

static __thread int local;
static __thread char local_bytes[256];
static pthread_barrier_t built;

static void *thread(void *argument)
{
	int number = (int)(long)argument;
	char name[16], found[16], on_stack[DEPTH];
	local = number;
	conform_fill(local_bytes, sizeof local_bytes, (unsigned)number);
	conform_fill(on_stack, sizeof on_stack, (unsigned)number + 1000);
	snprintf(name, sizeof name, "thread-%d", number);
	BUILD0(pthread_setname_np(pthread_self(), name));
	pid_t tid = (pid_t)syscall(SYS_gettid);
	pthread_t self = pthread_self();
	pthread_barrier_wait(&built);
	conform_wait();
	EXPECT("id of a thread", syscall(SYS_gettid), tid);
	EXPECT("pthread_self", pthread_equal(self, pthread_self()) != 0, 1);
	EXPECT("thread-local variable", local, number);
	conform_verify("thread-local memory", local_bytes, sizeof local_bytes, (unsigned)number);
	conform_verify("stack of a thread", on_stack, sizeof on_stack, (unsigned)number + 1000);
	BUILD0(pthread_getname_np(pthread_self(), found, sizeof found));
	EXPECT_TEXT("name of a thread", found, name);
	return argument;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t threads[THREADS];
	pthread_attr_t attributes;
	BUILD0(pthread_barrier_init(&built, NULL, THREADS + 1));
	BUILD0(pthread_attr_init(&attributes));
	BUILD0(pthread_attr_setstacksize(&attributes, STACK));
	for (long i = 0; i < THREADS; i++)
		BUILD0(pthread_create(&threads[i], &attributes, thread, (void *)i));
	pthread_barrier_wait(&built);
	conform_ready();
	conform_wait();
	for (long i = 0; i < THREADS; i++) {
		void *result;
		BUILD0(pthread_join(threads[i], &result));
		EXPECT("result of a thread", (long)result, i);
	}
	conform_pass();
}
