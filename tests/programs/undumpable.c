/*
 * A process that nobody may look into (PR_SET_DUMPABLE), with memory that it shares with a child until one of them writes.
 * conform: root
 */
#include "conform.h"
#include <sys/prctl.h>

enum { SIZE = 256 * CONFORM_PAGE };

static void child(void *memory)
{
	conform_mark("child");
	conform_wait();
	EXPECT("dumpable, child", prctl(PR_GET_DUMPABLE), 0);
	conform_verify("the child's memory", memory, SIZE, 11);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char *memory = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	conform_fill(memory, SIZE, 11);
	BUILD(prctl(PR_SET_DUMPABLE, 0));
	pid_t pid = conform_spawn(child, memory);
	conform_await("child");
	conform_ready();
	conform_wait();
	EXPECT("dumpable", prctl(PR_GET_DUMPABLE), 0);
	conform_verify("memory", memory, SIZE, 11);
	conform_join(pid);
	conform_pass();
}
