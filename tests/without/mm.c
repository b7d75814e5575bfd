/* Runs a program as a kernel without CONFIG_CHECKPOINT_RESTORE does: prctl(PR_SET_MM) knows no PR_SET_MM_MAP. For tests.
 *
 *     mm map|all COMMAND...
 *
 * map: only that; all: nothing of PR_SET_MM at all, as without CAP_SYS_RESOURCE. The filter is inherited by whatever the
 * command starts. Needs root, so that no_new_privs is not set, too. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
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
	if (argc < 3 || (strcmp(argv[1], "map") && strcmp(argv[1], "all"))) {
		fprintf(stderr, "usage: mm map|all COMMAND...\n");
		return 120;
	}
	unsigned allow = SECCOMP_RET_ALLOW;
	unsigned fields = strcmp(argv[1], "all") ? allow : SECCOMP_RET_ERRNO | EPERM;
	struct sock_filter program[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
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
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
	};
	struct sock_fprog filter = {.len = sizeof program / sizeof *program, .filter = program};
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) {
		fprintf(stderr, "mm: set the filter: %s\n", strerror(errno));
		return 120;
	}
	execvp(argv[2], argv + 2);
	fprintf(stderr, "mm: %s: %s\n", argv[2], strerror(errno));
	return 120;
}
