/*
 * Children of other users that have ended, not yet waited for: a parent is told whose they were (si_uid, /proc/PID/status).
 * conform: root
 */
#include "conform.h"
#include <grp.h>
#include <sys/resource.h>

enum { USER = 4711, GROUP = 4712 };

static void exits(void *status)
{
	BUILD(setgroups(0, NULL));
	BUILD(setresgid(GROUP, GROUP, GROUP));
	BUILD(setresuid(USER, USER, USER));
	if (*(int *)status < 0)
		BUILD(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0})), raise(SIGSEGV);
	_exit(*(int *)status);
}

int main(int argc, char **argv)
{
	static int statuses[] = {0, 7, -1};
	enum { ALL = sizeof statuses / sizeof *statuses };
	pid_t children[ALL];
	siginfo_t info;
	conform_start(argc, argv);
	for (int i = 0; i < ALL; i++) {
		children[i] = conform_spawn(exits, &statuses[i]);
		BUILD(waitid(P_PID, (id_t)children[i], &info, WEXITED | WNOWAIT));
		EXPECT("user before", info.si_uid, USER);
	}
	conform_ready();
	conform_wait();
	for (int i = 0; i < ALL; i++) {
		BUILD(waitid(P_PID, (id_t)children[i], &info, WEXITED | WNOHANG));
		EXPECT("child", info.si_pid, children[i]);
		EXPECT("its user", info.si_uid, USER);
		EXPECT("how it ended", info.si_code, statuses[i] < 0 ? CLD_KILLED : CLD_EXITED);
		EXPECT("status", info.si_status, statuses[i] < 0 ? SIGSEGV : statuses[i]);
	}
	conform_pass();
}
