/*
 * A filter that all threads of a process have in common: after a restart another one can still be set for all of them at once,
 * which the kernel allows only where theirs are the same.
 * conform: root
 */
#include "conform.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static atomic_bool built, checking;

static long forbid(int call, int error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = 4, .filter = code};
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

static void *other(void *unused)
{
	(void)unused;
	built = true;
	while (!checking)
		usleep(2000);
	EXPECT_ERROR("sethostname", syscall(SYS_sethostname, "x", 1), EXDEV);
	EXPECT_ERROR("getpgrp", syscall(SYS_getpgrp), EDOM);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	if (prctl(PR_GET_SECCOMP) != SECCOMP_MODE_DISABLED)
		conform_skip("a filter is in force here, under which others can't be suspended");
	pthread_t thread;
	BUILD0(pthread_create(&thread, NULL, other, NULL));
	while (!built)
		usleep(1000);
	BUILD(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	BUILD(forbid(SYS_sethostname, EXDEV));
	conform_ready();
	conform_wait();
	EXPECT("a filter for all", forbid(SYS_getpgrp, EDOM), 0);
	checking = true;
	BUILD0(pthread_join(thread, NULL));
	conform_pass();
}
