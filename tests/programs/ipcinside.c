/*
 * An IPC namespace in a user namespace of a process's own, in which there is nothing yet; a child in it.
 */
#include "namespaces.h"
#include <sys/ipc.h>
#include <sys/shm.h>

static void child(void *unused)
{
	(void)unused;
	conform_mark("born");
	conform_wait();
	conform_await("segment");
	EXPECT("segment of the parent's", shmget(0x1234, 4096, 0600) >= 0, 1);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	become_inside(0, CLONE_NEWIPC);
	pid_t process = conform_spawn(child, NULL);
	conform_await("born");
	conform_ready();
	conform_wait();
	int segment = (int)BUILD(shmget(0x1234, 4096, IPC_CREAT | IPC_EXCL | 0600));
	conform_mark("segment");
	conform_join(process);
	BUILD(shmctl(segment, IPC_RMID, NULL));
	conform_pass();
}
