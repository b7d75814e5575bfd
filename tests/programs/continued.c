/*
 * Children that go on after a stop: a parent is told of each once (WCONTINUED), also after it was told of the stop, and gets no
 * further SIGCHLD for it. Signals of job control that a child blocks, and its actions, are as they were.
 */
#include "conform.h"
#include <pthread.h>
#include <string.h>

static volatile sig_atomic_t signals, goings;

static void count(int signal)
{
	(signal == SIGCHLD) ? signals++ : goings++;
}

static void *sleeps(void *unused)
{
	conform_wait();
	return unused;
}

static void child(void *name)
{
	struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
	pthread_t thread;
	sigset_t set;
	int threads = strcmp(name, "threads") == 0, blocks = strcmp(name, "blocks") == 0;
	sigemptyset(&set);
	sigaddset(&set, blocks ? SIGTSTP : SIGCONT);
	BUILD(sigaction(SIGCONT, &action, NULL));
	if (blocks || strcmp(name, "keeps") == 0)
		BUILD(sigprocmask(SIG_BLOCK, &set, NULL));
	if (threads)
		BUILD(pthread_create(&thread, NULL, sleeps, NULL));
	conform_mark(name);
	conform_await("checked");
	if (threads)
		pthread_join(thread, NULL);
	EXPECT("SIGCONT handled", goings, strcmp(name, "keeps") == 0 ? 0 : 1);
	sigset_t pending;
	sigpending(&pending);
	EXPECT("SIGCONT pending", sigismember(&pending, SIGCONT), strcmp(name, "keeps") == 0);
	EXPECT("SIGTSTP pending", sigismember(&pending, SIGTSTP), blocks);
	if (strcmp(name, "keeps") == 0) {
		siginfo_t info;
		EXPECT("SIGCONT taken", sigwaitinfo(&set, &info), SIGCONT);
		EXPECT("its sender", info.si_pid, getppid());
	}
}

static int news(pid_t process, int of)
{
	siginfo_t info = {0};
	EXPECT("look", waitid(P_PID, (id_t)process, &info, of | WNOHANG | WNOWAIT), 0);
	return info.si_signo ? info.si_code : 0;
}

static void await_news(pid_t process, int of, int code)
{
	while (news(process, of) != code)
		conform_sleep_ms(1);
}

int main(int argc, char **argv)
{
	static const char *names[] = {"told", "untold", "never", "keeps", "blocks", "threads"};
	enum { TOLD, UNTOLD, NEVER, KEEPS, BLOCKS, THREADS, ALL };
	pid_t children[ALL];
	int status, before;
	struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
	conform_start(argc, argv);
	BUILD(sigaction(SIGCHLD, &action, NULL));
	for (int i = 0; i < ALL; i++) {
		children[i] = conform_spawn(child, (void *)names[i]);
		conform_await(names[i]);
	}
	for (int i = 0; i < ALL; i++) {
		if (i == NEVER)
			continue;
		BUILD(kill(children[i], SIGSTOP));
		await_news(children[i], WSTOPPED, CLD_STOPPED);
		if (i != UNTOLD)
			EXPECT("stop", waitpid(children[i], &status, WUNTRACED), children[i]);
		BUILD(kill(children[i], SIGCONT));
		await_news(children[i], WCONTINUED, CLD_CONTINUED);
	}
	BUILD(kill(children[NEVER], SIGCONT));
	EXPECT("going on", waitpid(children[TOLD], &status, WCONTINUED), children[TOLD]);
	BUILD(kill(children[BLOCKS], SIGTSTP));
	conform_sleep_ms(50);
	before = signals;
	conform_ready();
	conform_wait();
	EXPECT("SIGCHLD", signals, before);
	EXPECT("news of the one that was told", news(children[TOLD], WCONTINUED), 0);
	EXPECT("news of the one that never stood", news(children[NEVER], WCONTINUED), 0);
	for (int i = 0; i < ALL; i++) {
		if (i == TOLD || i == NEVER)
			continue;
		EXPECT("no stop", news(children[i], WSTOPPED), 0);
		EXPECT("told", waitpid(children[i], &status, WCONTINUED | WNOHANG), children[i]);
		EXPECT("how", WIFCONTINUED(status), true);
		EXPECT("once", news(children[i], WCONTINUED), 0);
	}
	conform_mark("checked");
	for (int i = 0; i < ALL; i++)
		conform_join(children[i]);
	conform_pass();
}
