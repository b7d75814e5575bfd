/* Children come and go, by fork and by posix_spawn, while checkpoints are taken; each status is right. */
#include "conform.h"
#include <sys/auxv.h>
#include <spawn.h>

extern char **environ;
static long turns;

static void turn(void *unused)
{
	(void)unused;
	int status, code = (int)(turns++ % 100);
	char wanted[16];
	pid_t child = BUILD(fork());
	if (child == 0)
		_exit(code);
	BUILD(waitpid(child, &status, 0));
	EXPECT("status of a forked child", WIFEXITED(status) ? WEXITSTATUS(status) : -1, code);
	snprintf(wanted, sizeof wanted, "%d", code);
	char *arguments[] = { "busyfork", "exit", wanted, NULL };
	BUILD0(posix_spawn(&child, (const char *)getauxval(AT_EXECFN), NULL, NULL, arguments, environ));
	BUILD(waitpid(child, &status, 0));
	EXPECT("status of a spawned child", WIFEXITED(status) ? WEXITSTATUS(status) : -1, code);
}

int main(int argc, char **argv)
{
	/* What is spawned: this program, since the machine's own may be for another processor. */
	if (argc == 3 && strcmp(argv[1], "exit") == 0)
		return atoi(argv[2]);
	conform_start(argc, argv);
	turn(NULL);
	conform_ready();
	conform_wait_with(turn, NULL);
	EXPECT_ERROR("wait when no child is left", wait(NULL), ECHILD);
	conform_pass();
}
