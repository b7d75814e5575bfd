/* Sessions and groups whose leaders have died, reaped or not; and a group led by a dead process of another parent. */
#include "conform.h"

static void survivor(void *argument)
{
	const char *name = argument;
	pid_t session = getsid(0), group = getpgrp();
	conform_mark(name);
	conform_wait();
	EXPECT(name, getsid(0), session);
	EXPECT(name, getpgrp(), group);
	EXPECT_ERROR("the dead leader's pid is free", kill(group, 0), ESRCH);
	char done[64];
	snprintf(done, sizeof done, "%s.done", name);
	conform_mark(done);
}

static void dead_session_leader(void *unused)
{
	(void)unused;
	BUILD(setsid());
	conform_spawn(survivor, "session");
}

static void dead_group_leader(void *unused)
{
	(void)unused;
	BUILD(setpgid(0, 0));
	conform_spawn(survivor, "group");
}

static void splits_off(void *unused)
{
	(void)unused;
	BUILD(setpgid(0, 0));
	conform_spawn(survivor, "inner");
}

/* Leader of a session, dead; in it a group whose leader is dead too. */
static void both_dead(void *unused)
{
	(void)unused;
	BUILD(setsid());
	conform_join(conform_spawn(splits_off, NULL));
}

int main(int argc, char **argv)
{
	static const char *const names[] = { "session", "group", "inner" };
	conform_start(argc, argv);
	conform_join(conform_spawn(dead_session_leader, NULL));
	conform_join(conform_spawn(dead_group_leader, NULL));
	conform_join(conform_spawn(both_dead, NULL));
	for (int i = 0; i < 3; i++)
		conform_await(names[i]);
	conform_ready();
	conform_wait();
	for (int i = 0; i < 3; i++) {
		char done[64];
		snprintf(done, sizeof done, "%s.done", names[i]);
		conform_await(done);
	}
	conform_pass();
}
