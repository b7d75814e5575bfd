/*
 * Stopped processes: one that has stopped itself and has a stopped child, of which only the one stop is told; and one with
 * threads, in which signals are pending that would end it, which wait until it goes on.
 */
#include "conform.h"
#include <pthread.h>

static pid_t *grandchild;

static void *idle(void *unused)
{
	for (;;)
		conform_sleep_ms(5);
	return unused;
}

static void outer(void *unused)
{
	int status;
	(void)unused;
	pid_t inner = (pid_t)BUILD(fork());
	if (inner == 0)
		idle(NULL);
	*grandchild = inner;
	conform_mark("outer");
	conform_await("continued");
	EXPECT("stop of the inner one", waitpid(*grandchild, &status, WUNTRACED | WNOHANG), *grandchild);
	EXPECT("its signal", WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP, true);
	EXPECT("once", waitpid(*grandchild, &status, WUNTRACED | WNOHANG), 0);
	BUILD(kill(*grandchild, SIGKILL));
	BUILD(waitpid(*grandchild, &status, 0));
}

static void ends(void *unused)
{
	pthread_t thread;
	BUILD(pthread_create(&thread, NULL, idle, unused) == 0 ? 0 : -1);
	conform_mark("ends");
	idle(NULL);
}

static void await_stop(pid_t process)
{
	while (conform_state(process) != 'T')
		conform_sleep_ms(1);
}

/* The signals that wait for a process. */
static long long pending(pid_t process)
{
	static char text[8192];
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/status", process);
	conform_read_file(path, text, sizeof text);
	char *line = strstr(text, "ShdPnd:");
	return line ? strtoll(line + 7, NULL, 16) : -1;
}

int main(int argc, char **argv)
{
	int status;
	conform_start(argc, argv);
	grandchild = mmap(NULL, sizeof *grandchild, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	pid_t nested = conform_spawn(outer, NULL), ending = conform_spawn(ends, NULL);
	conform_await("outer");
	conform_await("ends");
	BUILD(kill(nested, SIGSTOP));
	EXPECT("stop", waitpid(nested, &status, WUNTRACED), nested);
	BUILD(kill(*grandchild, SIGSTOP));
	await_stop(*grandchild);
	BUILD(kill(ending, SIGSTOP));
	EXPECT("stop", waitpid(ending, &status, WUNTRACED), ending);
	BUILD(kill(ending, SIGUSR1));
	BUILD(kill(ending, SIGTERM));
	long long before = pending(ending);

	conform_ready();
	conform_wait();

	EXPECT("news of stops", waitpid(-1, &status, WUNTRACED | WNOHANG), 0);
	EXPECT("all stand", conform_state(nested) == 'T' && conform_state(*grandchild) == 'T' && conform_state(ending) == 'T', true);
	EXPECT("signals that wait", pending(ending), before);
	BUILD(kill(ending, SIGCONT));
	EXPECT("end", waitpid(ending, &status, 0), ending);
	EXPECT("by the first of them", WIFSIGNALED(status) ? WTERMSIG(status) : 0, SIGUSR1);
	conform_mark("continued");
	BUILD(kill(nested, SIGCONT));
	conform_join(nested);
	conform_pass();
}
