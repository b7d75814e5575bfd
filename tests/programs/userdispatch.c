/*
 * A thread that has its system calls sent back to itself (PR_SET_SYSCALL_USER_DISPATCH), as Wine does: none of ckptd's calls is,
 * and all of its own still are.
 */
#include "conform.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
enum { OFF, ON, ALLOW = 0, BLOCK = 1 };

static volatile char selector = ALLOW;
static volatile sig_atomic_t sent_back;
static atomic_bool built, checking, ended;

static void handler(int signal, siginfo_t *info, void *context)
{
	(void)signal, (void)context;
	selector = ALLOW;
	sent_back = info->si_syscall;
}

static void *body(void *unused)
{
	(void)unused;
	BUILD(prctl(PR_SET_SYSCALL_USER_DISPATCH, ON, 0, 0, &selector));
	selector = BLOCK;
	built = true;
	/* Makes no call: each would be sent back. */
	while (!checking)
		;
	EXPECT("selector", selector, BLOCK);
	EXPECT("sent back before", sent_back, 0);
	syscall(SYS_getppid);
	EXPECT("sent back", sent_back, SYS_getppid);
	ended = true;
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	if (prctl(PR_SET_SYSCALL_USER_DISPATCH, OFF, 0, 0, 0))
		conform_skip("this kernel has no PR_SET_SYSCALL_USER_DISPATCH");
	struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	BUILD(sigaction(SIGSYS, &action, NULL));
	pthread_t thread;
	BUILD0(pthread_create(&thread, NULL, body, NULL));
	while (!built)
		usleep(1000);
	conform_ready();
	conform_wait();
	checking = true;
	BUILD0(pthread_join(thread, NULL));
	EXPECT("the thread has ended", ended, true);
	conform_pass();
}
