/*
 * How threads are scheduled: policies with their parameters, nice values of single threads (also where their policy makes no use of
 * them), slices, I/O priorities,
 * processors, and what of it children do not inherit.
 */
#include "conform.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/syscall.h>

struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
	uint32_t least, most;
};
enum { RESET_ON_FORK = 1, CLASS_SHIFT = 13, BEST_EFFORT = 2, IDLE = 3, DEADLINE = 6, MS = 1000000 };

static const struct {
	struct attributes wanted;
	int io, one_cpu, unused_nice;
} kinds[] = {
	{{.policy = SCHED_OTHER, .nice = 5}, BEST_EFFORT << CLASS_SHIFT | 2, 0, 0},
	{{.policy = SCHED_OTHER, .nice = 7, .runtime = 7 * MS}, IDLE << CLASS_SHIFT, 1, 0},
	{{.policy = SCHED_BATCH, .nice = 3, .flags = RESET_ON_FORK}, 0, 0, 0},
	{{.policy = SCHED_IDLE}, BEST_EFFORT << CLASS_SHIFT | 7, 0, 11},
	/* These take a privilege; without it threads are as they were. */
	{{.policy = SCHED_FIFO, .priority = 11}, 1 << CLASS_SHIFT | 3, 0, 12},
	{{.policy = SCHED_RR, .priority = 12, .flags = RESET_ON_FORK}, 0, 1, 0},
	{{.policy = DEADLINE, .runtime = 2 * MS, .deadline = 50 * MS, .period = 100 * MS}, 0, 0, 0},
	{{.policy = SCHED_OTHER, .nice = -4}, 0, 0, 0},
};
enum { COUNT = sizeof kinds / sizeof *kinds };

struct thread {
	int which, io, processors, nice;
	pthread_t number;
	struct attributes attributes;
};
static atomic_int built;
static atomic_bool checking;

static void look(struct thread *own)
{
	cpu_set_t set;
	own->attributes = (struct attributes){.size = sizeof own->attributes};
	BUILD(syscall(SYS_sched_getattr, 0, &own->attributes, sizeof own->attributes, 0));
	own->io = (int)BUILD(syscall(SYS_ioprio_get, 1, 0));
	BUILD(sched_getaffinity(0, sizeof set, &set));
	own->processors = CPU_COUNT(&set);
	own->nice = getpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid));
}

static void *body(void *argument)
{
	struct thread *own = argument;
	struct attributes wanted = kinds[own->which].wanted;
	wanted.size = sizeof wanted;
	syscall(SYS_sched_setattr, 0, &wanted, 0);
	if (kinds[own->which].io)
		syscall(SYS_ioprio_set, 1, 0, kinds[own->which].io);
	if (kinds[own->which].unused_nice)
		BUILD(setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), kinds[own->which].unused_nice));
	if (kinds[own->which].one_cpu) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(sched_getcpu(), &set);
		BUILD(sched_setaffinity(0, sizeof set, &set));
	}
	look(own);
	built++;
	while (!checking)
		usleep(2000);
	struct thread now;
	look(&now);
	const struct attributes *before = &own->attributes, *after = &now.attributes;
	EXPECT("policy", after->policy, before->policy);
	EXPECT("flags", after->flags, before->flags);
	EXPECT("nice value", after->nice, before->nice);
	EXPECT("nice value that counts later", now.nice, own->nice);
	EXPECT("priority", after->priority, before->priority);
	EXPECT("runtime", after->runtime, before->runtime);
	EXPECT("deadline", after->deadline, before->deadline);
	EXPECT("period", after->period, before->period);
	EXPECT("least utilization", after->least, before->least);
	EXPECT("most utilization", after->most, before->most);
	EXPECT("I/O priority", now.io, own->io);
	EXPECT("processors", now.processors, own->processors);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct thread threads[COUNT];
	for (int i = 0; i < COUNT; i++) {
		threads[i].which = i;
		BUILD0(pthread_create(&threads[i].number, NULL, body, &threads[i]));
	}
	while (built < COUNT)
		usleep(1000);
	conform_ready();
	conform_wait();
	checking = true;
	for (int i = 0; i < COUNT; i++)
		BUILD0(pthread_join(threads[i].number, NULL));
	conform_pass();
}
