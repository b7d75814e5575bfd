/*
 * Filters of system calls: threads with a chain of two in common, one with a filter more, one that came before them; calls that fail
 * with an error, and calls that end a process. None is in ckptd's way, and each is in force again. Later ones can still be set
 * for all threads.
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

static atomic_int built;
static atomic_bool checking;

/* From now on these calls, and no others, get this answer. */
static long forbid(const int *calls, int count, unsigned answer, unsigned flags)
{
	struct sock_filter code[16];
	int length = 0;
	code[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
	for (int i = 0; i < count; i++) {
		code[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, calls[i], 0, 1);
		code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, answer);
	}
	code[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog program = {.len = length, .filter = code};
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

static unsigned error(int number)
{
	return SECCOMP_RET_ERRNO | number;
}

/* How many filters the calling thread is under, and which mode it is in. */
static long field(const char *name)
{
	char status[8192];
	conform_read_file("/proc/thread-self/status", status, sizeof status);
	const char *line = strstr(status, name);
	return line ? atol(line + strlen(name)) : -1;
}

static void *with_one_more(void *unused)
{
	(void)unused;
	BUILD(forbid((int[]){SYS_getpgrp}, 1, error(EDOM), SECCOMP_FILTER_FLAG_LOG));
	long filters = field("Seccomp_filters:");
	built++;
	while (!checking)
		usleep(2000);
	EXPECT_ERROR("getpgrp", syscall(SYS_getpgrp), EDOM);
	EXPECT_ERROR("sethostname", syscall(SYS_sethostname, "x", 1), EXDEV);
	EXPECT_ERROR("mmap for code", mmap(NULL, 4096, PROT_EXEC, MAP_SHARED | MAP_ANONYMOUS, -1, 0), ENOTNAM);
	EXPECT("filters", field("Seccomp_filters:"), filters);
	return NULL;
}

static void *of_before(void *unused)
{
	(void)unused;
	built++;
	while (!checking)
		usleep(2000);
	EXPECT("getpgrp", syscall(SYS_getpgrp) > 0, true);
	return NULL;
}

/* Under no_new_privs, without any privilege; what it must not do would end it. */
static void child(void *unused)
{
	(void)unused;
	BUILD(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	BUILD(setresgid(1000, 1000, 1000));
	BUILD(setresuid(1000, 1000, 1000));
	/* Some of what ckptd does in processes. */
	int deadly[] = {SYS_prctl, SYS_rt_sigaction, SYS_munmap, SYS_capset, SYS_close_range, SYS_setsid};
	BUILD(forbid(deadly, sizeof deadly / sizeof *deadly, SECCOMP_RET_KILL_PROCESS, 0));
	conform_mark("child");
	conform_wait();
	EXPECT("mode", field("Seccomp:"), SECCOMP_MODE_FILTER);
	EXPECT("no_new_privs", field("NoNewPrivs:"), 1);
	if (conform_gone()) {
		pid_t pid = (pid_t)BUILD(fork());
		if (pid == 0) {
			syscall(SYS_setsid);
			_exit(0);
		}
		int status;
		BUILD(waitpid(pid, &status, 0));
		EXPECT("it ends by SIGSYS", WIFSIGNALED(status) ? WTERMSIG(status) : 0, SIGSYS);
	}
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	if (prctl(PR_GET_SECCOMP) != SECCOMP_MODE_DISABLED)
		conform_skip("a filter is in force here, under which others can't be suspended");
	BUILD(chmod(conform_path("."), 0777));
	pid_t pid = conform_spawn(child, NULL);
	conform_await("child");
	pthread_t before, after;
	BUILD0(pthread_create(&before, NULL, of_before, NULL));
	long first = field("Seccomp_filters:");
	/* Without no_new_privs, which takes a privilege; for the thread that is there as well. */
	BUILD(forbid((int[]){SYS_sethostname}, 1, error(EXDEV), SECCOMP_FILTER_FLAG_TSYNC));
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PROT_EXEC, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTNAM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = 6, .filter = code};
	BUILD(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
	BUILD0(pthread_create(&after, NULL, with_one_more, NULL));
	while (built < 2)
		usleep(1000);
	conform_ready();
	conform_wait();
	EXPECT("filters", field("Seccomp_filters:"), first + 2);
	EXPECT("no_new_privs", field("NoNewPrivs:"), 0);
	EXPECT_ERROR("sethostname", syscall(SYS_sethostname, "x", 1), EXDEV);
	EXPECT_ERROR("mmap for code", mmap(NULL, 4096, PROT_EXEC, MAP_SHARED | MAP_ANONYMOUS, -1, 0), ENOTNAM);
	EXPECT("getpgrp", syscall(SYS_getpgrp) > 0, true);
	checking = true;
	BUILD0(pthread_join(after, NULL));
	BUILD0(pthread_join(before, NULL));
	conform_join(pid);
	conform_pass();
}
