/*
 * Attributes that prctl(2) gives a process or one of its threads: each has its own after each restart.
 */
#include "conform.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE 65
#define PR_GET_MDWE 66
#endif
#ifndef PR_SET_MEMORY_MERGE
#define PR_SET_MEMORY_MERGE 67
#define PR_GET_MEMORY_MERGE 68
#endif
#ifndef PR_TIMER_CREATE_RESTORE_IDS
#define PR_TIMER_CREATE_RESTORE_IDS 77
#endif
/* Huge pages but where they are asked for, since Linux 6.18. */
#define EXCEPT_ADVISED 2

/* What this machine has of it; -1: not to be had here. */
static struct found {
	long merge, huge, exec_gain, timers;
} process;
struct thread {
	pthread_t number;
	long slack, stamps, cpuid, machine_check, flusher, bypass, branch;
	int which;
	char name[16];
};
static atomic_int built;
static atomic_bool checking;

static long get_stamps(void)
{
	int stamps = -1;
	return prctl(PR_GET_TSC, &stamps) ? -1 : stamps;
}

/* arch_prctl(2) of x86: ARCH_GET_CPUID, ARCH_SET_CPUID. */
static long cpuid(long command)
{
#ifdef __x86_64__
	return syscall(SYS_arch_prctl, command, 0);
#else
	return command & 0;
#endif
}

static struct found look(void)
{
	return (struct found){
		.merge = prctl(PR_GET_MEMORY_MERGE, 0, 0, 0, 0),
		.huge = prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0),
		.exec_gain = prctl(PR_GET_MDWE, 0, 0, 0, 0),
		.timers = prctl(PR_TIMER_CREATE_RESTORE_IDS, 2, 0, 0, 0),
	};
}

static void look_at_own(struct thread *own)
{
	own->slack = prctl(PR_GET_TIMERSLACK);
	own->stamps = get_stamps();
	own->cpuid = cpuid(0x1011);
	own->machine_check = prctl(PR_MCE_KILL_GET, 0, 0, 0, 0);
	own->flusher = prctl(PR_GET_IO_FLUSHER, 0, 0, 0, 0);
	own->bypass = prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, 0, 0, 0);
	own->branch = prctl(PR_GET_SPECULATION_CTRL, PR_SPEC_INDIRECT_BRANCH, 0, 0, 0);
	memset(own->name, 0, sizeof own->name);
	BUILD(prctl(PR_GET_NAME, own->name));
}

/* What is not to be had on this machine, or takes a privilege, is as it was. */
static void change(struct thread *own)
{
	int which = own->which;
	char name[16];
	snprintf(name, sizeof name, "thread %d", which);
	BUILD(prctl(PR_SET_NAME, name));
	BUILD(prctl(PR_SET_TIMERSLACK, 100000 + which));
	prctl(PR_MCE_KILL, PR_MCE_KILL_SET, which == 1 ? PR_MCE_KILL_EARLY : PR_MCE_KILL_LATE, 0, 0);
	if (which == 1) {
		prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
		cpuid(0x1012);
		prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
		prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, PR_SPEC_DISABLE, 0, 0);
	} else if (which == 2) {
		prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_STORE_BYPASS, PR_SPEC_FORCE_DISABLE, 0, 0);
		prctl(PR_SET_SPECULATION_CTRL, PR_SPEC_INDIRECT_BRANCH, PR_SPEC_DISABLE, 0, 0);
	}
	look_at_own(own);
}

static void check(const struct thread *before)
{
	struct thread now;
	look_at_own(&now);
	EXPECT("PR_GET_TIMERSLACK", now.slack, before->slack);
	EXPECT("PR_GET_TSC", now.stamps, before->stamps);
	EXPECT("ARCH_GET_CPUID", now.cpuid, before->cpuid);
	EXPECT("PR_MCE_KILL_GET", now.machine_check, before->machine_check);
	EXPECT("PR_GET_IO_FLUSHER", now.flusher, before->flusher);
	EXPECT("PR_SPEC_STORE_BYPASS", now.bypass, before->bypass);
	EXPECT("PR_SPEC_INDIRECT_BRANCH", now.branch, before->branch);
	EXPECT_TEXT("PR_GET_NAME", now.name, before->name);
}

static void *body(void *argument)
{
	struct thread *own = argument;
	change(own);
	built++;
	/* Without a look at the clock: this thread may have no time stamps. */
	while (!checking)
		usleep(2000);
	check(own);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct thread threads[3];
	for (int i = 0; i < 3; i++) {
		threads[i].which = i;
		BUILD0(pthread_create(&threads[i].number, NULL, body, &threads[i]));
	}
	while (built < 3)
		usleep(1000);
	prctl(PR_SET_MEMORY_MERGE, 1, 0, 0, 0);
	if (prctl(PR_SET_THP_DISABLE, 1, EXCEPT_ADVISED, 0, 0))
		prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	prctl(PR_TIMER_CREATE_RESTORE_IDS, 1, 0, 0, 0);
	prctl(PR_SET_MDWE, 1, 0, 0, 0);
	process = look();
	conform_ready();
	conform_wait();
	struct found now = look();
	EXPECT("PR_GET_MEMORY_MERGE", now.merge, process.merge);
	EXPECT("PR_GET_THP_DISABLE", now.huge, process.huge);
	EXPECT("PR_GET_MDWE", now.exec_gain, process.exec_gain);
	EXPECT("PR_TIMER_CREATE_RESTORE_IDS", now.timers, process.timers);
	checking = true;
	for (int i = 0; i < 3; i++)
		BUILD0(pthread_join(threads[i].number, NULL));
	conform_pass();
}
