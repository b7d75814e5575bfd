/* An IPC namespace of a process's own in which there is a POSIX message queue that nobody has open. */
#include "../namespaces.h"
#include <mqueue.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	become_inside(0, CLONE_NEWIPC);
	BUILD(close((int)BUILD(mq_open("/conform", O_RDWR | O_CREAT, 0600, NULL))));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_pass();
}
