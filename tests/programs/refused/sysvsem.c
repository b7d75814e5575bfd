/*
 * SysV semaphores: what each process owes them at its end can't be seen.
 */
#include "conform.h"
#include <sys/ipc.h>
#include <sys/sem.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int set = (int)BUILD(semget(IPC_PRIVATE, 2, 0600));
	BUILD(semctl(set, 1, SETVAL, 3));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	EXPECT("a semaphore", semctl(set, 1, GETVAL), 3);
	BUILD(semctl(set, 0, IPC_RMID));
	conform_pass();
}
