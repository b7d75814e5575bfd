/*
 * An IPC namespace of a process's own, in which there is nothing yet.
 *
 * conform: root
 */
#include "namespaces.h"
#include <sys/ipc.h>
#include <sys/shm.h>

static key_t key;

static void child(void *unused)
{
	(void)unused;
	BUILD(unshare(CLONE_NEWIPC));
	conform_mark("born");
	conform_wait();
	EXPECT_ERROR("segment of the job's", shmget(key, 4096, 0600), ENOENT);
	BUILD(shmctl((int)BUILD(shmget(key, 8192, IPC_CREAT | IPC_EXCL | 0600)), IPC_RMID, NULL));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	key = (key_t)(0x40000000 | getpid());
	int segment = (int)BUILD(shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0600));
	pid_t process = conform_spawn(child, NULL);
	conform_await("born");
	conform_ready();
	conform_wait();
	conform_join(process);
	EXPECT("segment", shmget(key, 4096, 0600), segment);
	BUILD(shmctl(segment, IPC_RMID, NULL));
	conform_pass();
}
