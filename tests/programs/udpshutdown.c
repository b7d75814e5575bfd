/* UDP sockets that were shut down: connected ones for reading, writing and both, and one that has no peer. */
#include "conform.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

enum { READING, WRITING, BOTH, ALONE, OPEN, SOCKETS };

static int peer;
static struct sockaddr_in at[SOCKETS];

static int make(struct sockaddr_in *name)
{
	int fd = (int)BUILD(socket(AF_INET, SOCK_DGRAM, 0));
	*name = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof *name;
	BUILD(conform_bind(fd, (struct sockaddr *)name, length));
	BUILD(getsockname(fd, (struct sockaddr *)name, &length));
	return fd;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct sockaddr_in there;
	int fd[SOCKETS];
	char got[8];
	signal(SIGPIPE, SIG_IGN);
	peer = make(&there);
	for (int i = 0; i < SOCKETS; i++) {
		fd[i] = make(&at[i]);
		if (i != ALONE)
			BUILD(connect(fd[i], (struct sockaddr *)&there, sizeof there));
	}
	/* What arrived before can still be read. */
	BUILD(sendto(peer, "early", 5, 0, (struct sockaddr *)&at[READING], sizeof *at));
	BUILD(shutdown(fd[READING], SHUT_RD));
	BUILD(shutdown(fd[WRITING], SHUT_WR));
	BUILD(shutdown(fd[BOTH], SHUT_RDWR));
	/* It fails, and takes effect. */
	EXPECT_ERROR("shutdown without a peer", shutdown(fd[ALONE], SHUT_RDWR), ENOTCONN);
	conform_ready();
	conform_wait();

	EXPECT("bytes from before", recv(fd[READING], got, sizeof got, 0), 5);
	struct pollfd poll_one = { .fd = fd[READING], .events = POLLIN | POLLRDHUP };
	EXPECT("ready", poll(&poll_one, 1, 0), 1);
	EXPECT("shut for reading", poll_one.revents, POLLIN | POLLRDHUP);
	EXPECT("end of what can be read", recv(fd[READING], got, sizeof got, 0), 0);
	EXPECT("it can send", send(fd[READING], "r", 1, 0), 1);
	EXPECT("to its peer", recv(peer, got, sizeof got, MSG_DONTWAIT), 1);
	EXPECT_ERROR("shut for writing", send(fd[WRITING], "w", 1, 0), EPIPE);
	EXPECT_ERROR("but not for reading", recv(fd[WRITING], got, sizeof got, MSG_DONTWAIT), EAGAIN);
	poll_one = (struct pollfd){ .fd = fd[BOTH], .events = POLLRDHUP };
	EXPECT("ready", poll(&poll_one, 1, 0), 1);
	EXPECT("shut", poll_one.revents, POLLHUP | POLLRDHUP);
	EXPECT_ERROR("shut for both", send(fd[BOTH], "b", 1, 0), EPIPE);
	EXPECT("shut without a peer", recv(fd[ALONE], got, sizeof got, 0), 0);
	EXPECT_ERROR("shut without a peer",
		     sendto(fd[ALONE], "a", 1, 0, (struct sockaddr *)&there, sizeof there), EPIPE);
	EXPECT("the open one", send(fd[OPEN], "o", 1, 0), 1);
	poll_one = (struct pollfd){ .fd = fd[OPEN], .events = POLLIN | POLLRDHUP };
	EXPECT("the open one is not shut", poll(&poll_one, 1, 0), 0);
	conform_pass();
}
