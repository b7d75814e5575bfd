/* Sessions and process groups, with leaders alive. */
#include "conform.h"

static void check(const char *what, pid_t session, pid_t group)
{
	conform_mark(what);
	conform_wait();
	EXPECT(what, getsid(0), session);
	EXPECT(what, getpgrp(), group);
}

static void member(void *leader)
{
	check("member", *(pid_t *)leader, *(pid_t *)leader);
}

static void group_leader(void *leader)
{
	BUILD(setpgid(0, 0));
	check("group_leader", *(pid_t *)leader, getpid());
}

static void session_leader(void *unused)
{
	(void)unused;
	pid_t self = BUILD(setsid());
	pid_t first = conform_spawn(member, &self), second = conform_spawn(group_leader, &self);
	conform_await("member");
	conform_await("group_leader");
	check("session_leader", self, self);
	EXPECT("group of a child", getpgid(second), second);
	conform_join(first);
	conform_join(second);
}

static void joins_group(void *group)
{
	BUILD(setpgid(0, *(pid_t *)group));
	check("joins_group", getsid(0), *(pid_t *)group);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t session = getsid(0), group = getpgrp(), mine = session;
	pid_t other = conform_spawn(session_leader, NULL);
	conform_await("session_leader");
	pid_t leader = conform_spawn(group_leader, &mine);
	/* the mark of the first group leader is there already: wait for the group itself */
	while (getpgid(leader) != leader)
		conform_sleep_ms(1);
	pid_t joined = conform_spawn(joins_group, &leader);
	conform_await("joins_group");
	conform_ready();
	conform_wait();
	EXPECT("session", getsid(0), session);
	EXPECT("group", getpgrp(), group);
	EXPECT("session of a child that made its own", getsid(other), other);
	conform_join(other);
	EXPECT("group that a child joined", getpgid(joined), leader);
	conform_join(joined);
	conform_join(leader);
	conform_pass();
}
