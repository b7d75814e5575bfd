/*
 * Who a Unix socket's peer is (SO_PEERCRED): of a pair, of a connection that a child has made, and of one that is not accepted
 * yet; and who has sent what is queued (SO_PASSCRED).
 */
#include "conform.h"
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un name = { .sun_family = AF_UNIX };
static socklen_t length = sizeof name;

static pid_t peer(int fd)
{
	struct ucred credentials;
	socklen_t size = sizeof credentials;
	BUILD(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size));
	EXPECT("user of the peer", credentials.uid, geteuid());
	return credentials.pid;
}

static int connected(void)
{
	int fd = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
	BUILD(connect(fd, (struct sockaddr *)&name, length));
	return fd;
}

static void child(void *argument)
{
	int accepted = connected(), waits = connected(), *sender = argument;
	BUILD(write(*sender, "child's", 7));
	conform_mark("connected");
	conform_wait();
	EXPECT("who listens", peer(accepted), getppid());
	EXPECT("who listens, not accepted", peer(waits), getppid());
}

static void expect_sender(int fd, const char *bytes, pid_t process)
{
	char text[16] = "", control[64];
	struct iovec part = { text, sizeof text - 1 };
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control,
	};
	BUILD(recvmsg(fd, &message, MSG_DONTWAIT));
	EXPECT_TEXT("message", text, bytes);
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	if (!head || head->cmsg_type != SCM_CREDENTIALS)
		conform_fail("a message without credentials");
	struct ucred sender;
	memcpy(&sender, CMSG_DATA(head), sizeof sender);
	EXPECT("process of the sender", sender.pid, process);
	EXPECT("user of the sender", sender.uid, geteuid());
}

int main(int argc, char **argv)
{
	int pair[2], datagrams[2], yes = 1;
	conform_start(argc, argv);
	BUILD(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
	BUILD(socketpair(AF_UNIX, SOCK_DGRAM, 0, datagrams));
	BUILD(setsockopt(datagrams[0], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes));
	int listener = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
	BUILD(bind(listener, (struct sockaddr *)&name, sizeof name.sun_family));
	BUILD(getsockname(listener, (struct sockaddr *)&name, &length));
	BUILD(listen(listener, 4));
	BUILD(write(datagrams[1], "parent's", 8));
	pid_t process = conform_spawn(child, &datagrams[1]);
	int accepted = (int)BUILD(accept(listener, NULL, NULL));
	conform_await("connected");
	conform_ready();
	conform_wait();
	EXPECT("who has made a pair", peer(pair[0]), getpid());
	EXPECT("who has made a pair, other end", peer(pair[1]), getpid());
	EXPECT("who has connected", peer(accepted), process);
	EXPECT("who waits to be accepted", peer((int)BUILD(accept(listener, NULL, NULL))), process);
	expect_sender(datagrams[0], "parent's", getpid());
	conform_join(process);
	conform_pass();
}
