/* A segment of the job's IPC namespace, in which no process is any more. */
#include "../namespaces.h"
#include <sys/shm.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int left = (int)BUILD(shmget(IPC_PRIVATE, 4096, 0600));
	BUILD(shmat(left, NULL, 0) == (void *)-1 ? -1 : 0);
	BUILD(shmctl(left, IPC_RMID, NULL));
	become_inside(0, CLONE_NEWIPC);
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_pass();
}
