/* A process whose parent has died goes on under init, and a subreaper keeps the orphans it adopted. */
#include "conform.h"
#include <sys/prctl.h>

static pid_t dying;

static void orphan(void *argument)
{
	const char *name = argument;
	while (getppid() == dying)
		conform_sleep_ms(1);
	pid_t parent = getppid();
	conform_mark(name);
	conform_wait();
	EXPECT("parent of an orphan", getppid(), parent);
	char done[64];
	snprintf(done, sizeof done, "%s.done", name);
	conform_mark(done);
}

static void dying_parent(void *name)
{
	dying = getpid();
	conform_spawn(orphan, name);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	conform_join(conform_spawn(dying_parent, "lost"));
	conform_await("lost");
	BUILD(prctl(PR_SET_CHILD_SUBREAPER, 1));
	conform_join(conform_spawn(dying_parent, "adopted"));
	conform_await("adopted");
	conform_ready();
	conform_wait();
	int subreaper = 0, status = -1;
	BUILD(prctl(PR_GET_CHILD_SUBREAPER, &subreaper));
	EXPECT("subreaper", subreaper, 1);
	BUILD(wait(&status));
	EXPECT("status of the adopted orphan", status, 0);
	conform_await("adopted.done");
	conform_await("lost.done");
	conform_pass();
}
