/*
 * SysV message queues: messages with their types and order, permissions, numbers, a size that was set; who waits for a
 * message of a type, and who waits for room.
 */
#include "conform.h"
#include <sys/ipc.h>
#include <sys/msg.h>

enum { SIZE = 512, SMALL = 1024, LARGE = 8000 };
struct message {
	long kind;
	char text[LARGE];
};
static int queue, full, empty;

static void put(int to, long kind, const char *text)
{
	struct message message = {.kind = kind};
	strcpy(message.text, text);
	BUILD(msgsnd(to, &message, strlen(text) + 1, 0));
}

static void take(int from, long wanted, long kind, const char *text, int flags)
{
	struct message message;
	ssize_t length = msgrcv(from, &message, sizeof message.text, wanted, flags);
	EXPECT("length of the message", length, strlen(text) + 1);
	EXPECT_TEXT("message", message.text, text);
	EXPECT("type", message.kind, kind);
}

static void waits_for_room(void *text)
{
	conform_mark("sending");
	put(full, 3, text);
}

static void waits_for_message(void *unused)
{
	(void)unused;
	conform_mark("receiving");
	take(empty, 5, 5, "for whoever waits", 0);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(msgctl((int)BUILD(msgget(IPC_PRIVATE, 0600)), IPC_RMID, NULL));
	key_t key = ftok(argv[1], 'q');
	queue = (int)BUILD(msgget(key, IPC_CREAT | IPC_EXCL | 0660));
	put(queue, 2, "second kind");
	put(queue, 1, "first kind");
	put(queue, 2, "second kind again");
	put(queue, 7, "");
	static struct message large = {.kind = 4};
	conform_fill(large.text, LARGE, 4);
	BUILD(msgsnd(queue, &large, LARGE, 0));

	full = (int)BUILD(msgget(IPC_PRIVATE, 0600));
	struct msqid_ds status;
	BUILD(msgctl(full, IPC_STAT, &status));
	status.msg_qbytes = SMALL;
	BUILD(msgctl(full, IPC_SET, &status));
	char text[SIZE];
	memset(text, 'x', SIZE - 1);
	text[SIZE - 1] = 0;
	put(full, 1, text);
	put(full, 2, text);
	empty = (int)BUILD(msgget(IPC_PRIVATE, 0600));
	pid_t sender = conform_spawn(waits_for_room, text), receiver = conform_spawn(waits_for_message, NULL);
	conform_await("sending");
	conform_await("receiving");

	conform_ready();
	conform_wait();

	EXPECT("number by key", msgget(key, 0), queue);
	BUILD(msgctl(queue, IPC_STAT, &status));
	EXPECT("mode", status.msg_perm.mode & 0777, 0660);
	EXPECT("owner", status.msg_perm.uid, geteuid());
	EXPECT("messages", status.msg_qnum, 5);
	take(queue, 1, 1, "first kind", IPC_NOWAIT);
	take(queue, 0, 2, "second kind", IPC_NOWAIT);
	take(queue, -2, 2, "second kind again", IPC_NOWAIT);
	take(queue, 0, 7, "", IPC_NOWAIT);
	EXPECT("length of the large one", msgrcv(queue, &large, LARGE, 0, IPC_NOWAIT), LARGE);
	conform_verify("the large one", large.text, LARGE, 4);
	EXPECT_ERROR("nothing is left", msgrcv(queue, &large, LARGE, 0, IPC_NOWAIT), ENOMSG);

	BUILD(msgctl(full, IPC_STAT, &status));
	EXPECT("size", status.msg_qbytes, SMALL);
	EXPECT_ERROR("it is full", msgsnd(full, &large, SIZE, IPC_NOWAIT), EAGAIN);
	take(full, 0, 1, text, 0);
	conform_join(sender);
	take(full, 0, 2, text, 0);
	take(full, 0, 3, text, 0);
	put(empty, 4, "for nobody");
	put(empty, 5, "for whoever waits");
	conform_join(receiver);
	take(empty, 0, 4, "for nobody", IPC_NOWAIT);
	int all[] = {queue, full, empty};
	for (int i = 0; i < 3; i++)
		BUILD(msgctl(all[i], IPC_RMID, NULL));
	conform_pass();
}
