/* A segment that is attached still in an IPC namespace that its process has left, and in which nobody is. */
#include "../namespaces.h"
#include <sys/shm.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	become_inside(0, CLONE_NEWIPC);
	BUILD(shmat((int)BUILD(shmget(IPC_PRIVATE, 4096, 0600)), NULL, 0) == (void *)-1 ? -1 : 0);
	BUILD(unshare(CLONE_NEWIPC));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_pass();
}
