/* What the TCP programs share: loopback addresses of either family. */
#ifndef TCP_H
#define TCP_H
#include "conform.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static inline socklen_t tcp_loopback(int family, int port, struct sockaddr_storage *address)
{
	memset(address, 0, sizeof *address);
	if (family == AF_INET) {
		struct sockaddr_in *v4 = (struct sockaddr_in *)address;
		v4->sin_family = AF_INET;
		v4->sin_port = htons((uint16_t)port);
		v4->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
		return sizeof *v4;
	}
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;
	v6->sin6_family = AF_INET6;
	v6->sin6_port = htons((uint16_t)port);
	v6->sin6_addr = in6addr_loopback;
	return sizeof *v6;
}

static inline int tcp_port(int fd, bool peer)
{
	struct sockaddr_storage found;
	socklen_t length = sizeof found;
	if (peer)
		BUILD(getpeername(fd, (struct sockaddr *)&found, &length));
	else
		BUILD(getsockname(fd, (struct sockaddr *)&found, &length));
	/* The port is at one place in both families. */
	return ntohs(((struct sockaddr_in *)&found)->sin_port);
}

static inline int tcp_listen(int family)
{
	struct sockaddr_storage address;
	socklen_t length = tcp_loopback(family, 0, &address);
	int fd = socket(family, SOCK_STREAM, 0);
	if (fd < 0 && errno == EAFNOSUPPORT)
		conform_skip("this address family is missing");
	BUILD(fd);
	if (conform_bind(fd, (struct sockaddr *)&address, length) != 0)
		conform_skip("no loopback address of this family");
	BUILD(listen(fd, 16));
	return fd;
}

static inline int tcp_connect(int family, int port)
{
	struct sockaddr_storage address;
	socklen_t length = tcp_loopback(family, port, &address);
	int fd = BUILD(socket(family, SOCK_STREAM, 0));
	BUILD(connect(fd, (struct sockaddr *)&address, length));
	return fd;
}

/* Two connected sockets; the listener is closed again. */
static inline void tcp_pair(int family, int pair[2])
{
	int listener = tcp_listen(family);
	pair[0] = tcp_connect(family, tcp_port(listener, false));
	pair[1] = BUILD(accept(listener, NULL, NULL));
	close(listener);
}

/* Sizes of buffers that are full soon, and of what is written and read at once. */
enum { TCP_SMALL = 16 * 1024, TCP_BLOCK = 4096 };

/* Two connected sockets with small receive buffers; the listener is closed again. */
static inline void tcp_small_pair(int family, int pair[2])
{
	struct sockaddr_storage address;
	int size = TCP_SMALL, listener = tcp_listen(family);
	BUILD(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
	pair[0] = (int)BUILD(socket(family, SOCK_STREAM, 0));
	BUILD(setsockopt(pair[0], SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
	socklen_t length = tcp_loopback(family, tcp_port(listener, false), &address);
	BUILD(connect(pair[0], (struct sockaddr *)&address, length));
	pair[1] = (int)BUILD(accept(listener, NULL, NULL));
	close(listener);
}

/* Writes until nothing more fits; every byte depends on its place in the stream and on the seed. Gives their number. */
static inline size_t tcp_stuff(int fd, unsigned seed)
{
	size_t sent = 0;
	char block[TCP_BLOCK];
	BUILD(fcntl(fd, F_SETFL, O_NONBLOCK));
	/* A full queue once may be the kernel catching its breath: three times in a row is full. */
	for (int refusals = 0; refusals < 3;) {
		/* Every byte depends on its place in the stream. */
		for (size_t i = 0; i < TCP_BLOCK; i++)
			block[i] = (char)((sent + i) * 31 + (sent + i) / 251 + seed);
		ssize_t done = write(fd, block, TCP_BLOCK);
		if (done < 0 && errno != EAGAIN)
			conform_fail("write: %s", strerror(errno));
		if (done > 0)
			sent += (size_t)done;
		else
			refusals++, conform_sleep_ms(20);
	}
	BUILD(fcntl(fd, F_SETFL, 0));
	return sent;
}

/* The next bytes to be read are those of tcp_stuff. */
static inline void tcp_expect_stream(const char *what, int fd, size_t length, unsigned seed)
{
	char block[TCP_BLOCK];
	for (size_t at = 0; at < length;) {
		size_t part = length - at < TCP_BLOCK ? length - at : TCP_BLOCK;
		conform_read_all(fd, block, part);
		for (size_t i = 0; i < part; i++)
			if (block[i] != (char)((at + i) * 31 + (at + i) / 251 + seed))
				conform_fail("%s: byte %zu of %zu is wrong", what, at + i, length);
		at += part;
	}
}

/* Reads what tcp_stuff has written until its end. Gives the number of bytes. */
static inline size_t tcp_drain(const char *what, int fd, unsigned seed)
{
	size_t length = 0;
	char block[TCP_BLOCK];
	for (;;) {
		ssize_t got = BUILD(read(fd, block, sizeof block));
		for (ssize_t i = 0; i < got; i++, length++)
			if (block[i] != (char)(length * 31 + length / 251 + seed))
				conform_fail("%s: byte %zu is wrong", what, length);
		if (got == 0)
			return length;
	}
}

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

/*
 * Connects to a port of the IPv4 loopback; where nobody answers, the kernel asks about once a second. `flags`:
 * SOCK_NONBLOCK. Gives a descriptor, which may still be asking, or -errno.
 */
static inline int tcp_ask(int port, int flags)
{
	struct sockaddr_storage address;
	socklen_t length = tcp_loopback(AF_INET, port, &address);
	int fd = (int)BUILD(socket(AF_INET, SOCK_STREAM | flags, 0)), each = 1000;
	/* Kernels before 6.15 don't have it and ask less often from time to time. */
	(void)!setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &each, sizeof each);
	int failed = connect(fd, (struct sockaddr *)&address, length) != 0 ? errno : 0;
	if (failed && failed != EINPROGRESS) {
		close(fd);
		return -failed;
	}
	return fd;
}

/* Whether a connection is still being asked for. */
static inline bool tcp_is_asking(int fd)
{
	struct tcp_info info;
	socklen_t length = sizeof info;
	BUILD(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
	return info.tcpi_state == TCP_SYN_SENT;
}

#endif
