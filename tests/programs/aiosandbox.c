/*
 * A context of asynchronous input and output in a process that may make no other, nor an eventfd (seccomp(2)), and that lets
 * all memory to come be locked.
 * conform: root
 */
#include "aio.inc"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	if (prctl(PR_GET_SECCOMP) != SECCOMP_MODE_DISABLED)
		conform_skip("a filter is in force here, under which others can't be suspended");
	aio_context_t context = aio_make(8);
	int ready = (int)BUILD(eventfd(1, 0));
	struct iocb order = aio_poll(ready, 5);
	if (aio_submit(context, &order) != 1)
		conform_skip("this kernel's contexts don't wait for descriptors");
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_setup, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_eventfd2, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
	struct sock_fprog program = { .len = sizeof code / sizeof *code, .filter = code };
	BUILD(mlockall(MCL_CURRENT | MCL_FUTURE));
	BUILD(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	BUILD(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program));
	conform_ready();
	conform_wait();
	struct io_event event;
	EXPECT("an event", syscall(SYS_io_getevents, context, 1, 1, &event, NULL), 1);
	EXPECT("data of an event", event.data, 5);
	aio_spend(context, ready, 300);
	BUILD(syscall(SYS_io_destroy, context));
	char status[8192];
	char *later = conform_map(64 * CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	unsigned char there[64] = "";
	BUILD(mincore(later, sizeof there * CONFORM_PAGE, there));
	EXPECT("memory to come is locked", there[63] & 1, 1);
	conform_read_file("/proc/self/status", status, sizeof status);
	EXPECT("the sandbox", strstr(status, "Seccomp:\t2") != NULL, 1);
	conform_pass();
}
