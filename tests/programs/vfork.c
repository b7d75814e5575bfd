/* A vfork in progress: the child runs for a while before exec, and its parent cannot stop until it has. */
#include "conform.h"
#include <sys/auxv.h>

enum { CHILD_MS = 1200, CHILD_STATUS = 5 };

int main(int argc, char **argv)
{
	/* What the child executes: this program, since the machine's own may be for another processor. */
	if (argc == 2 && strcmp(argv[1], "child") == 0)
		return CHILD_STATUS;
	conform_start(argc, argv);
	volatile int turns = 0;
	do {
		pid_t child = vfork();
		if (child == 0) {
			/* Memory is the parent's, so only system calls on its own stack from here on. */
			if (turns == 0)
				conform_ready();
			conform_sleep_ms(CHILD_MS);
			execl((const char *)getauxval(AT_EXECFN), "vfork", "child", (char *)NULL);
			_exit(127);
		}
		int status = 0;
		BUILD(child);
		EXPECT("waitpid of the vfork child", waitpid(child, &status, 0), child);
		EXPECT("exit of the vfork child", WIFEXITED(status) ? WEXITSTATUS(status) : -1, CHILD_STATUS);
		turns++;
	} while (!conform_gone());
	conform_pass();
}
