/*
 * Stopped children: a parent is told of each stop once (WUNTRACED), and gets one SIGCHLD for it. Shells print a line each time
 * that they are told.
 */
#include "conform.h"

static volatile sig_atomic_t signals;

static void count(int signal)
{
	(void)signal;
	signals++;
}

static void child(void *name)
{
	conform_mark(name);
	conform_wait();
}

/* Whether there is anything to be told of a child, without taking it. */
static int news(pid_t process)
{
	siginfo_t info = {0};
	EXPECT("look", waitid(P_PID, process, &info, WSTOPPED | WNOHANG | WNOWAIT), 0);
	return info.si_signo ? info.si_status : 0;
}

static void await_signals(int wanted)
{
	while (signals < wanted)
		conform_sleep_ms(1);
}

int main(int argc, char **argv)
{
	int status;
	struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
	conform_start(argc, argv);
	BUILD(sigaction(SIGCHLD, &action, NULL));
	pid_t told = conform_spawn(child, "told"), untold = conform_spawn(child, "untold");
	conform_await("told");
	conform_await("untold");
	BUILD(kill(told, SIGSTOP));
	EXPECT("stop", waitpid(told, &status, WUNTRACED), told);
	await_signals(1);
	BUILD(kill(untold, SIGSTOP));
	await_signals(2);
	EXPECT("news before", news(untold), SIGSTOP);
	conform_ready();
	conform_wait();
	EXPECT("SIGCHLD", signals, 2);
	EXPECT("news of the one that was told", news(told), 0);
	EXPECT("news of the other", news(untold), SIGSTOP);
	EXPECT("told", waitpid(untold, &status, WUNTRACED | WNOHANG), untold);
	EXPECT("stopped", WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP, true);
	EXPECT("once", waitpid(-1, &status, WUNTRACED | WNOHANG), 0);
	EXPECT("state", conform_state(told) == 'T' && conform_state(untold) == 'T', true);
	BUILD(kill(told, SIGCONT));
	BUILD(kill(untold, SIGCONT));
	conform_join(told);
	conform_join(untold);
	conform_pass();
}
