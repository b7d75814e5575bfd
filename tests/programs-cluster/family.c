/*
 * Parent and children: family ROUNDS PACE
 * Each round the parent signals every child by its number and each child answers by getppid(). At the end one child
 * exits with a status, one dies of a signal of its own, one is killed, and one falls with its process group.
 */
#include "split.h"

enum { CHILDREN = 4, PATIENCE_S = 30 };

static sigset_t awaited;

static void await(int signal, long round)
{
	struct timespec patience = { PATIENCE_S, 0 };
	int came;
	do {
		came = sigtimedwait(&awaited, NULL, &patience);
	} while (came < 0 && errno == EINTR);
	if (came != signal)
		fail("round %ld: signal %d came, not %d", round, came, signal);
}

static void child(int index, pid_t parent, long rounds)
{
	if (index == 3)
		MUST(setpgid(0, 0));
	for (long round = 0; round < rounds; round++) {
		await(SIGUSR1, round);
		if (getppid() != parent)
			fail("round %ld: the parent is %d, not %d", round, (int)getppid(), (int)parent);
		MUST(kill(getppid(), SIGUSR2));
	}
	if (index == 0)
		_exit(7);
	if (index == 1)
		raise(SIGALRM);
	for (;;)
		pause();
}

static void expect(const char *what, pid_t child, int options, int expected)
{
	int status;
	if (MUST(waitpid(child, &status, options)) != child || status != expected)
		fail("%s: status %#x, not %#x", what, (unsigned)status, (unsigned)expected);
}

int main(int argc, char **argv)
{
	split_name = "family";
	if (argc != 3)
		fail("usage: family ROUNDS PACE");
	long rounds = number(argv[1]);
	sigemptyset(&awaited);
	sigaddset(&awaited, SIGUSR1);
	sigaddset(&awaited, SIGUSR2);
	MUST(sigprocmask(SIG_BLOCK, &awaited, NULL));
	pid_t parent = getpid(), children[CHILDREN];
	for (int i = 0; i < CHILDREN; i++) {
		children[i] = (pid_t)MUST(fork());
		if (children[i] == 0)
			child(i, parent, rounds);
	}
	say("started");
	for (long round = 0; round < rounds; round++) {
		for (int i = 0; i < CHILDREN; i++) {
			MUST(kill(children[i], SIGUSR1));
			await(SIGUSR2, round);
		}
		pace(number(argv[2]));
	}
	expect("exit", children[0], 0, 7 << 8);
	expect("own signal", children[1], 0, SIGALRM);
	MUST(kill(children[2], SIGTERM));
	expect("killed", children[2], 0, SIGTERM);
	MUST(kill(-children[3], SIGKILL));
	expect("killed group", children[3], 0, SIGKILL);
	say("right");
	return 0;
}
