/* Filters of sockets (SO_ATTACH_FILTER): one that is locked, and one that can still be taken off. */
#include "conform.h"
#include <arpa/inet.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>

#ifndef SO_GET_FILTER
#define SO_GET_FILTER SO_ATTACH_FILTER
#endif
#ifndef SO_LOCK_FILTER
#define SO_LOCK_FILTER 44
#endif

/* Drops what begins with an x: the filter of a UDP socket sees the header of 8 bytes first. */
static struct sock_filter no_x[] = {
	BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 8),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'x', 0, 1),
	BPF_STMT(BPF_RET | BPF_K, 0),
	BPF_STMT(BPF_RET | BPF_K, 0xffff),
};
enum { INSTRUCTIONS = sizeof no_x / sizeof *no_x };

static int receiver(struct sockaddr_in *at)
{
	int fd = (int)BUILD(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0));
	*at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	BUILD(conform_bind(fd, (struct sockaddr *)at, sizeof *at));
	socklen_t size = sizeof *at;
	BUILD(getsockname(fd, (struct sockaddr *)at, &size));
	struct sock_fprog program = {.len = INSTRUCTIONS, .filter = no_x};
	BUILD(setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
	return fd;
}

static void check(const char *what, int fd, const struct sockaddr_in *at)
{
	struct sock_filter found[INSTRUCTIONS];
	socklen_t count = INSTRUCTIONS;
	BUILD(getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, found, &count));
	EXPECT("instructions", count, INSTRUCTIONS);
	EXPECT("they differ", memcmp(found, no_x, sizeof no_x), 0);
	int sender = (int)BUILD(socket(AF_INET, SOCK_DGRAM, 0));
	BUILD(sendto(sender, "x", 1, 0, (const struct sockaddr *)at, sizeof *at));
	BUILD(sendto(sender, "y", 1, 0, (const struct sockaddr *)at, sizeof *at));
	char got[4] = "";
	EXPECT(what, recv(fd, got, sizeof got, 0), 1);
	EXPECT("what came through", got[0], 'y');
	EXPECT_ERROR("what the filter drops", recv(fd, got, sizeof got, 0), EAGAIN);
	BUILD(close(sender));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct sockaddr_in at[2];
	int open = receiver(&at[0]), locked = receiver(&at[1]), on = 1;
	BUILD(setsockopt(locked, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on));
	conform_ready();
	conform_wait();
	check("the open one's message", open, &at[0]);
	check("the locked one's message", locked, &at[1]);
	BUILD(setsockopt(open, SOL_SOCKET, SO_DETACH_FILTER, &on, sizeof on));
	EXPECT_ERROR("a locked filter is taken off", setsockopt(locked, SOL_SOCKET, SO_DETACH_FILTER, &on, sizeof on), EPERM);
	conform_pass();
}
