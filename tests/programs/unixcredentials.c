/*
 * Who has sent what is queued in Unix sockets (SO_PASSCRED), and who is connected (SO_PEERCRED), where that process has
 * ended: streams, packets and datagrams, of several processes.
 */
#include "conform.h"
#include <sys/socket.h>
#include <sys/un.h>

enum { ENDED = 2, KINDS = 3 };

static const int kinds[KINDS] = { SOCK_STREAM, SOCK_SEQPACKET, SOCK_DGRAM };

static struct sockaddr_un name = { .sun_family = AF_UNIX };
static pid_t ended[ENDED], alive, connector;
static int pairs[KINDS][2];

static void say(const char *text)
{
	for (int kind = 0; kind < KINDS; kind++)
		conform_write_all(pairs[kind][0], text, strlen(text));
}

static void waits(void *unused)
{
	(void)unused;
	say("alive");
	conform_mark("alive");
	conform_wait();
	conform_await("checked");
}

static void expect_sender(int kind, const char *bytes, pid_t process)
{
	char text[16] = "", control[64], what[64];
	struct iovec part = { text, sizeof text - 1 };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control,
	};
	snprintf(what, sizeof what, "kind %d, %s", kind, bytes);
	BUILD(recvmsg(pairs[kind][1], &message, MSG_DONTWAIT));
	EXPECT_TEXT(what, text, bytes);
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	if (!head || head->cmsg_type != SCM_CREDENTIALS)
		conform_fail("a message without credentials");
	struct ucred sender;
	memcpy(&sender, CMSG_DATA(head), sizeof sender);
	EXPECT(what, sender.pid, process);
	EXPECT("user of the sender", sender.uid, geteuid());
}

/* A child that does something and has ended; its number, which nobody has any more. */
static pid_t gone(void (*body)(void *))
{
	pid_t child = conform_spawn(body, NULL);
	conform_join(child);
	return child;
}

static void first(void *unused)
{
	(void)unused;
	say("first");
}

static void second(void *unused)
{
	(void)unused;
	say("second");
}

static int client;

static void connects(void *unused)
{
	(void)unused;
	BUILD(connect(client, (struct sockaddr *)&name, sizeof name));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int yes = 1, offset = 2;
	for (int kind = 0; kind < KINDS; kind++) {
		BUILD(socketpair(AF_UNIX, kinds[kind], 0, pairs[kind]));
		BUILD(setsockopt(pairs[kind][1], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes));
	}
	BUILD(setsockopt(pairs[2][1], SOL_SOCKET, SO_PEEK_OFF, &offset, sizeof offset));
	snprintf(name.sun_path, sizeof name.sun_path, "%s", conform_path("s"));
	int listener = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
	BUILD(bind(listener, (struct sockaddr *)&name, sizeof name));
	BUILD(listen(listener, 4));
	client = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
	ended[0] = gone(first);
	ended[1] = gone(second);
	connector = gone(connects);
	int accepted = (int)BUILD(accept(listener, NULL, NULL));
	alive = conform_spawn(waits, NULL);
	conform_await("alive");
	say("own");
	conform_ready();
	conform_wait();
	socklen_t length = sizeof offset;
	BUILD(getsockopt(pairs[2][1], SOL_SOCKET, SO_PEEK_OFF, &offset, &length));
	EXPECT("the program's own offset", offset, 2);
	for (int kind = 0; kind < KINDS; kind++) {
		expect_sender(kind, "first", ended[0]);
		expect_sender(kind, "second", ended[1]);
		expect_sender(kind, "alive", alive);
		expect_sender(kind, "own", getpid());
	}
	struct ucred peer;
	length = sizeof peer;
	BUILD(getsockopt(accepted, SOL_SOCKET, SO_PEERCRED, &peer, &length));
	EXPECT("who has connected", peer.pid, connector);
	conform_mark("checked");
	conform_join(alive);
	conform_pass();
}
