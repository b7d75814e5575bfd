/*
 * An IPC namespace that belongs to a user namespace in which no process is any more: a process has made objects there, and another
 * user namespace within it. A child is in them, too.
 */
#include "namespaces.h"
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/shm.h>

enum { SIZE = 2 * CONFORM_PAGE, KEY = 0x1234 };

static void child(void *memory)
{
	conform_mark("born");
	conform_wait();
	conform_verify("inherited segment", memory, SIZE, 5);
	BUILD(shmdt(memory));
}

int main(int argc, char **argv)
{
	struct sembuf take = { .sem_op = -2, .sem_flg = SEM_UNDO };
	conform_start(argc, argv);
	become_inside(0, CLONE_NEWIPC);
	int segment = (int)BUILD(shmget(KEY, SIZE, IPC_CREAT | IPC_EXCL | 0600));
	int set = (int)BUILD(semget(KEY, 1, IPC_CREAT | IPC_EXCL | 0600));
	BUILD(semctl(set, 0, SETVAL, 7));
	become_inside(0, 0);
	char *memory = shmat(segment, NULL, 0);
	BUILD(memory == (void *)-1 ? -1 : 0);
	conform_fill(memory, SIZE, 5);
	BUILD(semop(set, &take, 1));
	pid_t process = conform_spawn(child, memory);
	conform_await("born");
	conform_ready();
	conform_wait();
	EXPECT("segment by key", shmget(KEY, 0, 0), segment);
	conform_verify("segment", memory, SIZE, 5);
	EXPECT("set by key", semget(KEY, 0, 0), set);
	EXPECT("semaphore", BUILD(semctl(set, 0, GETVAL)), 5);
	conform_join(process);
	struct shmid_ds state;
	BUILD(shmctl(segment, IPC_STAT, &state));
	EXPECT("who has it attached", state.shm_nattch, 1);
	EXPECT("its owner", state.shm_perm.uid, getuid());
	conform_pass();
}
