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
