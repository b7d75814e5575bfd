/* A seccomp filter that lets another process decide: its listener would have nobody to listen to after a restart. */
#include "conform.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int up[2];
	char byte;
	BUILD(pipe(up));
	pid_t child = (pid_t)BUILD(fork());
	if (child == 0) {
		struct sock_filter code[] = {
			BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sethostname, 0, 1),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		};
		struct sock_fprog program = {.len = 4, .filter = code};
		BUILD(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
		/* The listener is closed again: it is the filter that is refused. */
		int listener = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
		if (listener >= 0)
			close(listener);
		BUILD(write(up[1], listener < 0 ? "n" : "y", 1));
		pause();
		_exit(0);
	}
	conform_read_all(up[0], &byte, 1);
	if (byte == 'n') {
		kill(child, SIGKILL);
		conform_skip("a filter with a listener is in force here already");
	}
	conform_expect_refusal(child, -1);
	conform_ready();
	conform_wait();
	EXPECT("it lives", waitpid(child, NULL, WNOHANG), 0);
	BUILD(kill(child, SIGKILL));
	BUILD(waitpid(child, NULL, 0));
	conform_pass();
}
