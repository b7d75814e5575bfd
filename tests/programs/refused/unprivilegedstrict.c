/*
 * seccomp's strict mode: any call into the process would kill it, and suspending it takes a privilege.
 * conform: user
 */
#include "conform.h"
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	if (prctl(PR_GET_SECCOMP) != SECCOMP_MODE_DISABLED)
		conform_skip("a filter is in force here, beside which there is no strict mode");
	int go[2], up[2];
	BUILD(pipe(go));
	BUILD(pipe(up));
	pid_t child = (pid_t)BUILD(fork());
	if (child == 0) {
		char byte = 0;
		BUILD(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
		if (write(up[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1)
			syscall(SYS_exit, byte);
		syscall(SYS_exit, 1);
	}
	char byte;
	conform_read_all(up[0], &byte, 1);
	conform_expect_refusal(child, -1);
	conform_ready();
	conform_wait();
	EXPECT("a process in strict mode lives", waitpid(child, NULL, WNOHANG), 0);
	conform_write_all(go[1], "\x2a", 1);
	int status = 0;
	BUILD(waitpid(child, &status, 0));
	EXPECT("its status", status, 0x2a00);
	conform_pass();
}
