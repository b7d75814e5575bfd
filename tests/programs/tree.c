/* A tree of processes three deep: PIDs and parents stay, and every parent reaps its own children. */
#include "conform.h"

enum { CHILDREN = 3, GRANDCHILDREN = 2 };

static void grandchild(void *name)
{
	pid_t self = getpid(), parent = getppid();
	conform_mark(name);
	conform_wait();
	EXPECT("pid of a grandchild", getpid(), self);
	EXPECT("parent of a grandchild", getppid(), parent);
}

static void child(void *argument)
{
	int number = *(int *)argument;
	pid_t self = getpid(), parent = getppid(), born[GRANDCHILDREN];
	char name[32];
	for (int i = 0; i < GRANDCHILDREN; i++) {
		snprintf(name, sizeof name, "born.%d.%d", number, i);
		born[i] = conform_spawn(grandchild, name);
		conform_await(name);
	}
	snprintf(name, sizeof name, "born.%d", number);
	conform_mark(name);
	conform_wait();
	EXPECT("pid of a child", getpid(), self);
	EXPECT("parent of a child", getppid(), parent);
	for (int i = 0; i < GRANDCHILDREN; i++)
		conform_join(born[i]);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t self = getpid(), parent = getppid(), born[CHILDREN];
	for (int i = 0; i < CHILDREN; i++) {
		char name[32];
		born[i] = conform_spawn(child, &i);
		snprintf(name, sizeof name, "born.%d", i);
		conform_await(name);
	}
	conform_ready();
	conform_wait();
	EXPECT("pid", getpid(), self);
	EXPECT("parent", getppid(), parent);
	for (int i = 0; i < CHILDREN; i++)
		conform_join(born[i]);
	EXPECT_ERROR("wait when no child is left", wait(NULL), ECHILD);
	conform_pass();
}
