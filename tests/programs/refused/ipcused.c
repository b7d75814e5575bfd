/* An IPC namespace of a process's own in which there is a segment. */
#include "../namespaces.h"
#include <sys/shm.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	become_inside(0, CLONE_NEWIPC);
	BUILD(shmget(IPC_PRIVATE, 4096, 0600));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_pass();
}
