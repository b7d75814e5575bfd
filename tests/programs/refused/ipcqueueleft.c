/* A POSIX message queue that is open still, of an IPC namespace that its process has left, and in which nobody is. */
#include "../namespaces.h"
#include <mqueue.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	become_inside(0, CLONE_NEWIPC);
	int queue = (int)BUILD(mq_open("/conform", O_RDWR | O_CREAT, 0600, NULL));
	BUILD(unshare(CLONE_NEWIPC));
	conform_expect_refusal(getpid(), queue);
	conform_ready();
	conform_wait();
	conform_pass();
}
