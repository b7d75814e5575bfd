/* A SysV message queue with a message. */
#include "conform.h"
#include <sys/ipc.h>
#include <sys/msg.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct {
		long kind;
		char text[4];
	} message = {.kind = 1, .text = "abc"};
	int queue = (int)BUILD(msgget(IPC_PRIVATE, 0600));
	BUILD(msgsnd(queue, &message, sizeof message.text, 0));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	EXPECT("bytes received", msgrcv(queue, &message, sizeof message.text, 0, IPC_NOWAIT), sizeof message.text);
	BUILD(msgctl(queue, IPC_RMID, NULL));
	conform_pass();
}
