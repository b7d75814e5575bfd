/*
 * A segment of another IPC namespace that is attached still, where the process's own has one of the same number that nobody has
 * attached.
 */
#include "../namespaces.h"
#include <sys/shm.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	become_inside(0, CLONE_NEWIPC);
	int left = (int)BUILD(shmget(IPC_PRIVATE, 4096, 0600));
	BUILD(shmat(left, NULL, 0) == (void *)-1 ? -1 : 0);
	BUILD(unshare(CLONE_NEWIPC));
	EXPECT("number of the first segment", BUILD(shmget(IPC_PRIVATE, 4096, 0600)), left);
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_pass();
}
