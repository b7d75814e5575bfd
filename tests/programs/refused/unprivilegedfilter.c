/*
 * A seccomp filter of the program's own, which takes a privilege to read.
 * conform: user
 */
#include "conform.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct sock_filter allow[] = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
	struct sock_fprog program = {.len = 1, .filter = allow};
	BUILD(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	BUILD(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	EXPECT("seccomp mode", prctl(PR_GET_SECCOMP, 0, 0, 0, 0), SECCOMP_MODE_FILTER);
	conform_pass();
}
