/*
 * A TCP socket whose connection was refused, which its program has not been told yet: the error is told once, by SO_ERROR or
 * by the next call, and it is not that of a connection that was made and reset.
 */
#include "conform.h"
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

static socklen_t length;

/* An address where nobody listens: of a socket that is merely bound. */
static int nobody(int family, struct sockaddr_storage *at)
{
	int fd = (int)BUILD(socket(family, SOCK_STREAM, 0));
	memset(at, 0, sizeof *at);
	at->ss_family = (sa_family_t)family;
	if (family == AF_INET)
		((struct sockaddr_in *)at)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		((struct sockaddr_in6 *)at)->sin6_addr = in6addr_loopback;
	length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
	if (conform_bind(fd, (struct sockaddr *)at, length) != 0)
		return -1;
	BUILD(getsockname(fd, (struct sockaddr *)at, &length));
	return fd;
}

static int refused(int family, struct sockaddr_storage *at)
{
	int fd = (int)BUILD(socket(family, SOCK_STREAM | SOCK_NONBLOCK, 0));
	struct pollfd set = { fd, 0, 0 };
	EXPECT_ERROR("connect", connect(fd, (struct sockaddr *)at, length), EINPROGRESS);
	EXPECT("an error that waits", poll(&set, 1, 5000), 1);
	return fd;
}

static int error_of(int fd)
{
	int error = -1;
	socklen_t size = sizeof error;
	BUILD(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size));
	return error;
}

int main(int argc, char **argv)
{
	struct sockaddr_storage at;
	char byte;
	conform_start(argc, argv);
	int closed = nobody(AF_INET, &at);
	int by_option = refused(AF_INET, &at), by_read = refused(AF_INET, &at), by_connect = refused(AF_INET, &at);
	struct sockaddr_storage at4 = at;
	socklen_t length4 = length;
	/* One that was made, and reset. */
	struct linger at_once = { 1, 0 };
	int listener = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	struct sockaddr_in own = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t size = sizeof own;
	BUILD(conform_bind(listener, (struct sockaddr *)&own, sizeof own));
	BUILD(listen(listener, 5));
	BUILD(getsockname(listener, (struct sockaddr *)&own, &size));
	int reset = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	BUILD(connect(reset, (struct sockaddr *)&own, sizeof own));
	int accepted = (int)BUILD(accept(listener, NULL, NULL));
	BUILD(setsockopt(accepted, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once));
	BUILD(close(accepted));
	int closed6 = nobody(AF_INET6, &at);
	int six = closed6 < 0 ? -1 : refused(AF_INET6, &at);
	conform_ready();
	conform_wait();
	struct pollfd set = { by_option, POLLIN | POLLOUT, 0 };
	EXPECT("poll", poll(&set, 1, 0), 1);
	EXPECT("events", set.revents, POLLIN | POLLOUT | POLLERR | POLLHUP);
	EXPECT("error by option", error_of(by_option), ECONNREFUSED);
	EXPECT("the same again", error_of(by_option), 0);
	EXPECT_ERROR("error by read", read(by_read, &byte, 1), ECONNREFUSED);
	EXPECT("the end then", read(by_read, &byte, 1), 0);
	EXPECT_ERROR("error by connect", connect(by_connect, (struct sockaddr *)&at4, length4), ECONNREFUSED);
	EXPECT("error of one that was reset", error_of(reset), ECONNRESET);
	if (six >= 0)
		EXPECT("error of IPv6", error_of(six), ECONNREFUSED);
	/* It can be connected again. */
	BUILD(close(closed));
	BUILD(fcntl(by_connect, F_SETFL, 0));
	BUILD(connect(by_connect, (struct sockaddr *)&own, sizeof own));
	accepted = (int)BUILD(accept(listener, NULL, NULL));
	conform_write_all(by_connect, "x", 1);
	conform_expect_bytes("what was sent", accepted, "x");
	conform_pass();
}
