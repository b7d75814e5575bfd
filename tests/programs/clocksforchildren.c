/*
 * Time namespaces that processes have made for their children: with children in it, without any yet, and without any
 * more; in a user namespace of their own; and one within another.
 */
#include "clocks.h"

static const int64_t ODD = 1234567891;

static void nothing(void *unused)
{
	(void)unused;
}

static void differ(void)
{
	char own[64], children[64];
	namespace_name("time", own, sizeof own);
	namespace_name("time_for_children", children, sizeof children);
	if (strcmp(own, children) == 0)
		conform_fail("its children are in its own namespace");
}

/* Its clock is ahead of that of whoever said `then`. */
static int64_t then;
static void ahead(void *seconds)
{
	int64_t least = *(int64_t *)seconds;
	int64_t found = (conform_clock(CLOCK_MONOTONIC) - then) / SECOND;
	EXPECT_BETWEEN("clock of a child is ahead by s", found, least, least + 60);
}

static void expect_child_ahead(int64_t seconds)
{
	then = conform_clock(CLOCK_MONOTONIC);
	conform_join(conform_spawn(ahead, &seconds));
}

/* Nobody has been in it: its clocks can still be set. */
static void untouched(void *unused)
{
	(void)unused;
	new_clocks(AHEAD_MONOTONIC * SECOND + ODD, AHEAD_BOOTTIME * SECOND);
	conform_mark("untouched");
	conform_wait();
	differ();
	expect_ahead("clocks that nobody has", AHEAD_MONOTONIC * SECOND + ODD, AHEAD_BOOTTIME * SECOND);
	EXPECT("error of setting them again", set_ahead(AHEAD_BOOTTIME * SECOND, 0), 0);
	expect_ahead("clocks that nobody had", AHEAD_BOOTTIME * SECOND, 0);
	expect_child_ahead(AHEAD_BOOTTIME);
}

/* Somebody has been in it. */
static void left(void *unused)
{
	(void)unused;
	new_clocks(AHEAD_MONOTONIC * SECOND, ODD);
	conform_join(conform_spawn(nothing, NULL));
	EXPECT("error of setting them", set_ahead(0, 0), EACCES);
	conform_mark("left");
	conform_wait();
	differ();
	expect_ahead("clocks that nobody has any more", AHEAD_MONOTONIC * SECOND, ODD);
	EXPECT("error of setting them", set_ahead(0, 0), EACCES);
	expect_child_ahead(AHEAD_MONOTONIC);
}

static void innermost(void *unused)
{
	(void)unused;
	conform_mark("innermost");
	conform_wait();
	expect_ahead("clocks within others", AHEAD_BOOTTIME * SECOND, 3 * AHEAD_BOOTTIME * SECOND);
	expect_child_ahead(0);
}

static void within(void *unused)
{
	(void)unused;
	new_clocks(AHEAD_BOOTTIME * SECOND, 3 * AHEAD_BOOTTIME * SECOND);
	pid_t child = conform_spawn(innermost, NULL);
	conform_await("innermost");
	conform_mark("within");
	conform_wait();
	differ();
	expect_ahead("clocks within others, of children", AHEAD_BOOTTIME * SECOND, 3 * AHEAD_BOOTTIME * SECOND);
	expect_child_ahead(AHEAD_BOOTTIME - AHEAD_MONOTONIC);
	conform_join(child);
}

/* One that stays, so that these clocks are told. */
static void stays(void *mark)
{
	conform_mark(mark);
	conform_wait();
	expect_ahead("outer clocks", AHEAD_MONOTONIC * SECOND, 0);
}

static void outer(void *unused)
{
	(void)unused;
	new_clocks(AHEAD_MONOTONIC * SECOND, 0);
	pid_t first = conform_spawn(stays, "stays");
	conform_await("stays");
	pid_t child = conform_spawn(within, NULL);
	conform_await("within");
	conform_mark("outer");
	conform_wait();
	differ();
	expect_child_ahead(AHEAD_MONOTONIC);
	conform_join(first);
	conform_join(child);
}

/* In a namespace that belongs to other users than the job's. */
static void of_others(void *unused)
{
	(void)unused;
	become_inside(0, NEW_TIME);
	EXPECT("error of setting clocks", set_ahead(AHEAD_MONOTONIC * SECOND, 0), 0);
	pid_t child = conform_spawn(stays, "stays inside");
	conform_await("stays inside");
	conform_mark("of others");
	conform_wait();
	differ();
	expect_child_ahead(AHEAD_MONOTONIC);
	conform_join(child);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	bool is_root = geteuid() == 0;
	if (!is_root)
		become_inside(0, 0);
	enum { CHILDREN = 4 };
	static void (*const bodies[CHILDREN])(void *) = { untouched, left, outer, of_others };
	static const char *const marks[CHILDREN] = { "untouched", "left", "outer", "of others" };
	int count = is_root ? CHILDREN : CHILDREN - 1;
	pid_t children[CHILDREN];
	for (int i = 0; i < count; i++) {
		children[i] = conform_spawn(bodies[i], NULL);
		conform_await(marks[i]);
	}
	conform_ready();
	conform_wait();
	for (int i = 0; i < count; i++)
		conform_join(children[i]);
	conform_pass();
}
