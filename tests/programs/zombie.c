/* Children that have ended, not yet waited for: exit statuses and signals, a zombie that leads a group or a session. */
#include "conform.h"
#include <sys/resource.h>

static void exits(void *status)
{
	_exit(*(int *)status);
}

static void dies(void *signal)
{
	raise(*(int *)signal);
}

/* What would leave a core file, if it may. */
static void crashes(void *unused)
{
	(void)unused;
	BUILD(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}));
	raise(SIGSEGV);
}

static void leads_group(void *unused)
{
	(void)unused;
	BUILD(setpgid(0, 0));
	_exit(11);
}

static void leads_session(void *unused)
{
	(void)unused;
	BUILD(setsid());
	_exit(12);
}

static void await_zombie(pid_t child)
{
	siginfo_t info;
	BUILD(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT));
}

static void expect_exit(const char *what, pid_t child, int code, int value)
{
	siginfo_t info = { 0 };
	BUILD(waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG));
	EXPECT(what, info.si_pid, child);
	EXPECT(what, info.si_code, code);
	EXPECT(what, info.si_status, value);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int zero = 0, seven = 7, term = SIGTERM, killed = SIGKILL;
	pid_t clean = conform_spawn(exits, &zero), failed = conform_spawn(exits, &seven);
	pid_t ended = conform_spawn(dies, &term), shot = conform_spawn(dies, &killed);
	pid_t group = conform_spawn(leads_group, NULL), session = conform_spawn(leads_session, NULL);
	pid_t crashed = conform_spawn(crashes, NULL);
	pid_t all[] = { clean, failed, ended, shot, group, session, crashed };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		await_zombie(all[i]);
	conform_ready();
	conform_wait();
	EXPECT("group of a zombie", getpgid(group), group);
	EXPECT("session of a zombie", getsid(session), session);
	expect_exit("zombie with status 0", clean, CLD_EXITED, 0);
	expect_exit("zombie with status 7", failed, CLD_EXITED, 7);
	expect_exit("zombie killed by SIGTERM", ended, CLD_KILLED, SIGTERM);
	expect_exit("zombie killed by SIGKILL", shot, CLD_KILLED, SIGKILL);
	expect_exit("zombie killed by SIGSEGV", crashed, CLD_KILLED, SIGSEGV);
	expect_exit("zombie that led a group", group, CLD_EXITED, 11);
	expect_exit("zombie that led a session", session, CLD_EXITED, 12);
	EXPECT_ERROR("wait when no child is left", wait(NULL), ECHILD);
	conform_pass();
}
