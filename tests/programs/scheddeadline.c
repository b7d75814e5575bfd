/*
 * Threads of SCHED_DEADLINE (sched(7)), which may make no children; one that is the process's first, and one that is not.
 * conform: root
 */
#include "conform.h"
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};

static volatile int there;

static bool become(uint64_t runtime)
{
	struct attributes wanted = {
		.size = sizeof wanted, .policy = 6, .runtime = runtime, .deadline = 20000000, .period = 50000000,
	};
	return syscall(SYS_sched_setattr, 0, &wanted, 0) == 0;
}

static void check(uint64_t runtime)
{
	struct attributes now = { 0 };
	BUILD(syscall(SYS_sched_getattr, 0, &now, sizeof now, 0));
	EXPECT("policy", now.policy, 6);
	EXPECT("flags", now.flags, 0);
	EXPECT("runtime", now.runtime, runtime);
	EXPECT("deadline", now.deadline, 20000000);
	EXPECT("period", now.period, 50000000);
	EXPECT_ERROR("a child", fork(), EAGAIN);
}

static void *thread(void *unused)
{
	if (!become(2000000))
		conform_skip("no SCHED_DEADLINE here");
	there = 1;
	conform_wait();
	check(2000000);
	return unused;
}

int main(int argc, char **argv)
{
	pthread_t other;
	conform_start(argc, argv);
	BUILD0(pthread_create(&other, NULL, thread, NULL));
	while (!there)
		conform_sleep_ms(1);
	if (!become(3000000))
		conform_skip("no SCHED_DEADLINE here");
	conform_ready();
	conform_wait();
	check(3000000);
	BUILD0(pthread_join(other, NULL));
	conform_pass();
}
