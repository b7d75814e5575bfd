/* A POSIX message queue without a name any more, that was made in an IPC namespace of the program's own, with a message in it. */
#include "namespaces.h"
#include <mqueue.h>

int main(int argc, char **argv)
{
	struct mq_attr attributes = { .mq_maxmsg = 3, .mq_msgsize = 16 };
	char text[16];
	unsigned priority;
	conform_start(argc, argv);
	become_inside(0, CLONE_NEWIPC);
	mqd_t queue = (mqd_t)BUILD(mq_open("/conform", O_RDWR | O_CREAT | O_EXCL, 0600, &attributes));
	BUILD(mq_send(queue, "message", 8, 5));
	BUILD(mq_unlink("/conform"));
	conform_ready();
	conform_wait();
	EXPECT("length", BUILD(mq_receive(queue, text, sizeof text, &priority)), 8);
	EXPECT_TEXT("message", text, "message");
	EXPECT("priority", priority, 5);
	EXPECT_ERROR("its name", mq_open("/conform", O_RDWR), ENOENT);
	conform_pass();
}
