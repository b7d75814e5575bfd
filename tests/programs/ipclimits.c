/* A System V message queue with more in it, and a longer message, than a new IPC namespace allows: its own has higher limits. */
#include "namespaces.h"
#include <sys/ipc.h>
#include <sys/msg.h>

enum { LONG = 20000, LARGE = 50000 };
static struct message {
	long kind;
	char text[LONG];
} message;

static void raise_limit(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		conform_skip("limits of an IPC namespace can't be raised here");
	BUILD(close(fd));
}

int main(int argc, char **argv)
{
	struct msqid_ds status;
	conform_start(argc, argv);
	become_inside(0, CLONE_NEWIPC);
	raise_limit("/proc/sys/kernel/msgmax", "20000");
	raise_limit("/proc/sys/kernel/msgmnb", "50000");
	int queue = (int)BUILD(msgget(IPC_PRIVATE, 0600));
	for (unsigned kind = 1; kind <= 2; kind++) {
		message.kind = (long)kind;
		conform_fill(message.text, LONG, kind);
		BUILD(msgsnd(queue, &message, LONG, 0));
	}
	conform_ready();
	conform_wait();
	BUILD(msgctl(queue, IPC_STAT, &status));
	EXPECT("size", status.msg_qbytes, LARGE);
	for (unsigned kind = 1; kind <= 2; kind++) {
		EXPECT("length", BUILD(msgrcv(queue, &message, LONG, (long)kind, IPC_NOWAIT)), LONG);
		conform_verify("message", message.text, LONG, kind);
	}
	conform_pass();
}
