/*
 * Sockets that share a port or are bound to an address of nobody, although the option that allowed it (SO_REUSEPORT,
 * SO_REUSEADDR, IP_FREEBIND) was cleared afterwards.
 */
#include "conform.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

static struct sockaddr_in at;

static int bound(int type, int option, const struct sockaddr_in *where)
{
	int fd = (int)BUILD(socket(AF_INET, type | SOCK_NONBLOCK, 0)), on = 1;
	BUILD(setsockopt(fd, SOL_SOCKET, option, &on, sizeof on));
	BUILD(conform_bind(fd, (const struct sockaddr *)where, sizeof *where));
	return fd;
}

static void clear(int fd, int level, int option)
{
	int off = 0;
	BUILD(setsockopt(fd, level, option, &off, sizeof off));
}

static int number(int fd, int level, int option)
{
	int value = -1;
	socklen_t length = sizeof value;
	BUILD(getsockopt(fd, level, option, &value, &length));
	return value;
}

static struct sockaddr_in name(int fd)
{
	struct sockaddr_in found;
	socklen_t length = sizeof found;
	BUILD(getsockname(fd, (struct sockaddr *)&found, &length));
	return found;
}

/* Two at one port: the first of the kernel's choice. */
static void pair(int type, int option, int both[2])
{
	at = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	both[0] = bound(type, option, &at);
	struct sockaddr_in same = name(both[0]);
	both[1] = bound(type, option, &same);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int stream[2], datagram[2], addresses[2], free_bind, on = 1;
	pair(SOCK_STREAM, SO_REUSEPORT, stream);
	pair(SOCK_DGRAM, SO_REUSEPORT, datagram);
	pair(SOCK_DGRAM, SO_REUSEADDR, addresses);
	for (int i = 0; i < 2; i++) {
		BUILD(listen(stream[i], 5));
		clear(stream[i], SOL_SOCKET, SO_REUSEPORT);
	}
	clear(addresses[1], SOL_SOCKET, SO_REUSEADDR);
	/* TEST-NET-1 is nobody's (RFC 5737). */
	struct sockaddr_in nobodys = { .sin_family = AF_INET, .sin_addr.s_addr = inet_addr("192.0.2.77") };
	free_bind = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	BUILD(setsockopt(free_bind, IPPROTO_IP, IP_FREEBIND, &on, sizeof on));
	BUILD(conform_bind(free_bind, (struct sockaddr *)&nobodys, sizeof nobodys));
	clear(free_bind, IPPROTO_IP, IP_FREEBIND);
	struct sockaddr_in before[3] = { name(stream[0]), name(datagram[0]), name(free_bind) };
	/* What is queued stays with the socket that had it. */
	struct sockaddr_in to = name(datagram[0]);
	int senders[2] = { -1, -1 };
	for (int tries = 0; tries < 200 && (senders[0] < 0 || senders[1] < 0); tries++) {
		int sender = (int)BUILD(socket(AF_INET, SOCK_DGRAM, 0));
		char byte;
		BUILD(sendto(sender, "?", 1, 0, (struct sockaddr *)&to, sizeof to));
		int which = recv(datagram[0], &byte, 1, 0) == 1 ? 0 : 1;
		if (which == 1)
			EXPECT("the other has it", recv(datagram[1], &byte, 1, 0), 1);
		if (senders[which] < 0)
			senders[which] = sender;
		else
			close(sender);
	}
	for (int i = 0; i < 2; i++) {
		char text[2] = { (char)('0' + i), 0 };
		if (senders[i] < 0)
			conform_fail("one of two that share a port gets nothing");
		BUILD(sendto(senders[i], text, 1, 0, (struct sockaddr *)&to, sizeof to));
		BUILD(close(senders[i]));
	}
	for (int i = 0; i < 2; i++)
		clear(datagram[i], SOL_SOCKET, SO_REUSEPORT);
	conform_ready();
	conform_wait();

	for (int i = 0; i < 2; i++) {
		char got = 0;
		EXPECT("a listener's port", name(stream[i]).sin_port, before[0].sin_port);
		EXPECT("it listens", number(stream[i], SOL_SOCKET, SO_ACCEPTCONN), 1);
		EXPECT("SO_REUSEPORT of a listener", number(stream[i], SOL_SOCKET, SO_REUSEPORT), 0);
		EXPECT("a socket's port", name(datagram[i]).sin_port, before[1].sin_port);
		EXPECT("SO_REUSEPORT", number(datagram[i], SOL_SOCKET, SO_REUSEPORT), 0);
		EXPECT("SO_REUSEADDR of datagrams", number(datagram[i], SOL_SOCKET, SO_REUSEADDR), 0);
		EXPECT("SO_REUSEADDR", number(addresses[i], SOL_SOCKET, SO_REUSEADDR), i == 0);
		EXPECT("what was queued", recv(datagram[i], &got, 1, 0), 1);
		EXPECT("whose it was", got, '0' + i);
		EXPECT_ERROR("no more than that", recv(datagram[i], &got, 1, 0), EAGAIN);
	}
	EXPECT("their ports", name(addresses[0]).sin_port, name(addresses[1]).sin_port);
	EXPECT("address of nobody", name(free_bind).sin_addr.s_addr, nobodys.sin_addr.s_addr);
	EXPECT("its port", name(free_bind).sin_port, before[2].sin_port);
	EXPECT("IP_FREEBIND", number(free_bind, IPPROTO_IP, IP_FREEBIND), 0);
	conform_pass();
}
