/* Runs a program as a kernel that lacks something does. For tests.
 *
 *     lacking map|all|kcmp COMMAND...
 *
 * map: PR_SET_MM_MAP, as without CONFIG_CHECKPOINT_RESTORE; all: all of PR_SET_MM, as without CAP_SYS_RESOURCE; kcmp: kcmp(2) and
 * userfaultfd(2), as without CONFIG_KCMP and CONFIG_USERFAULTFD. The filter is inherited by whatever the command starts. Needs root,
 * so that no_new_privs is not set, too. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The lower half of an argument, on little-endian machines. */
#define ARGUMENT(number) (offsetof(struct seccomp_data, args) + 8 * (number))

int main(int argc, char **argv)
{
	bool map = argc > 2 && !strcmp(argv[1], "map"), all = argc > 2 && !strcmp(argv[1], "all");
	bool kcmp = argc > 2 && !strcmp(argv[1], "kcmp");
	if (!map && !all && !kcmp) {
		fprintf(stderr, "usage: lacking map|all|kcmp COMMAND...\n");
		return 120;
	}
	unsigned allow = SECCOMP_RET_ALLOW;
	unsigned whole = kcmp ? allow : SECCOMP_RET_ERRNO | EINVAL;
	unsigned fields = all ? SECCOMP_RET_ERRNO | EPERM : allow;
	unsigned compared = kcmp ? SECCOMP_RET_ERRNO | ENOSYS : allow;
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_kcmp, 1, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, compared),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, allow),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(0)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_MM, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, allow),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(1)),
		/* Both operations on the whole. */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_MM_MAP, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_MM_MAP_SIZE, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, fields),
		BPF_STMT(BPF_RET | BPF_K, whole),
	};
	struct sock_fprog filter = {.len = sizeof program / sizeof *program, .filter = program};
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
		fprintf(stderr, "lacking: set the filter: %s\n", strerror(errno));
		return 120;
	}
	execvp(argv[2], argv + 2);
	fprintf(stderr, "lacking: %s: %s\n", argv[2], strerror(errno));
	return 120;
}
