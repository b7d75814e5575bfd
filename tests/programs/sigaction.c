/* The action of every signal: handler, flags, mask; ignored and default ones. */
#include "conform.h"
#include <sys/syscall.h>

/* The kernel's own form: glibc hides SA_RESTORER. */
struct kernel_action {
	unsigned long handler, flags, restorer, mask;
};

static void first(int signal) { (void)signal; }
static void second(int signal, siginfo_t *info, void *context) { (void)signal, (void)info, (void)context; }

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	static struct kernel_action before[65], after[65];
	for (int s = 1; s < 65; s++) {
		if (s == SIGKILL || s == SIGSTOP || s == 32 || s == 33)
			continue;
		struct sigaction action = { 0 };
		if (s % 4 == 0)
			action.sa_handler = SIG_IGN;
		else if (s % 4 == 1)
			action.sa_handler = first;
		else if (s % 4 == 2)
			action.sa_sigaction = second;
		action.sa_flags = (s % 4 == 2 ? SA_SIGINFO : 0) | (s % 3 ? SA_RESTART : 0) |
				  (s % 5 ? 0 : SA_NODEFER) | (s % 7 ? 0 : SA_ONSTACK);
		sigaddset(&action.sa_mask, s);
		sigaddset(&action.sa_mask, 1 + (s * 7) % 30);
		BUILD(sigaction(s, &action, NULL));
	}
	for (int s = 1; s < 65; s++)
		BUILD(syscall(SYS_rt_sigaction, s, NULL, &before[s], 8));
	conform_ready();
	conform_wait();
	for (int s = 1; s < 65; s++) {
		BUILD(syscall(SYS_rt_sigaction, s, NULL, &after[s], 8));
		EXPECT("handler of a signal", after[s].handler, before[s].handler);
		EXPECT("flags of a signal", after[s].flags, before[s].flags);
		EXPECT("restorer of a signal", after[s].restorer, before[s].restorer);
		EXPECT("mask of a signal", after[s].mask, before[s].mask);
	}
	conform_pass();
}
