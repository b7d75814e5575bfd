/*
 * A process with its parent's memory (CLONE_VM) that leads a process group of its own, in the foreground of its terminal.
 */
#include "conform.h"
#include <sched.h>
#include <sys/ioctl.h>

enum { STACK = 256 * 1024 };

static volatile int in_front;

static int waits(void *unused)
{
	(void)unused;
	const struct timespec rest = { .tv_nsec = 5000000 };
	BUILD(setpgid(0, 0));
	in_front = 1;
	while (!conform_gone())
		nanosleep(&rest, NULL);
	_exit(0);
}

static void leads(void *unused)
{
	(void)unused;
	char *stack = conform_map(STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	BUILD(setsid());
	int master = (int)BUILD(posix_openpt(O_RDWR | O_NOCTTY));
	BUILD(grantpt(master));
	BUILD(unlockpt(master));
	int slave = (int)BUILD(open(ptsname(master), O_RDWR));
	pid_t child = (pid_t)BUILD(clone(waits, stack + STACK, CLONE_VM | SIGCHLD, NULL));
	while (!in_front)
		conform_sleep_ms(5);
	BUILD(tcsetpgrp(slave, child));
	conform_expect_refusal(child, -1);
	conform_mark("led");
	conform_wait();
	conform_join(child);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t leader = conform_spawn(leads, NULL);
	conform_await("led");
	conform_ready();
	conform_wait();
	conform_join(leader);
	conform_pass();
}
