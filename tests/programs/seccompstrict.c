/*
 * seccomp's strict mode, in which any call but read, write, exit and sigreturn ends the process.
 * conform: root
 */
#include "conform.h"
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static pid_t start(int *to, int *from)
{
	int go[2], up[2];
	BUILD(pipe(go));
	BUILD(pipe(up));
	pid_t child = (pid_t)BUILD(fork());
	if (child == 0) {
		char byte = 0;
		BUILD(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT));
		if (write(up[1], &byte, 1) == 1 && read(go[0], &byte, 1) == 1) {
			if (byte == 1)
				syscall(SYS_getppid);
			syscall(SYS_exit, byte);
		}
		syscall(SYS_exit, 99);
	}
	*to = go[1];
	*from = up[0];
	return child;
}

static int end(pid_t child, int to, const char *word)
{
	int status = 0;
	EXPECT("a process in strict mode lives", waitpid(child, NULL, WNOHANG), 0);
	conform_write_all(to, word, 1);
	BUILD(waitpid(child, &status, 0));
	return status;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	if (prctl(PR_GET_SECCOMP) != SECCOMP_MODE_DISABLED)
		conform_skip("a filter is in force here, beside which there is no strict mode");
	int to[2], from[2];
	pid_t children[2];
	char byte;
	for (int i = 0; i < 2; i++) {
		children[i] = start(&to[i], &from[i]);
		conform_read_all(from[i], &byte, 1);
	}
	conform_ready();
	conform_wait();
	EXPECT("status of one that does what it may", end(children[0], to[0], "\x2a"), 0x2a00);
	EXPECT("status of one that does not", end(children[1], to[1], "\x01"), SIGKILL);
	conform_pass();
}
