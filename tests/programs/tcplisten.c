/* Listening TCP sockets: IPv4, IPv6 alone and both on one port, the same port, a connection made afterwards. */
#include "tcp.h"

static int bound(int family, int port, int only)
{
	struct sockaddr_storage address;
	socklen_t length = tcp_loopback(family, port, &address);
	int fd = BUILD(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)), one = 1;
	BUILD(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	if (family == AF_INET6) {
		((struct sockaddr_in6 *)&address)->sin6_addr = in6addr_any;
		BUILD(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only, sizeof only));
	}
	BUILD(conform_bind(fd, (struct sockaddr *)&address, length));
	BUILD(listen(fd, 5));
	return fd;
}

static void reach(const char *what, int listener, int family, int port)
{
	int client = tcp_connect(family, port), accepted = -1;
	for (int i = 0; i < 200 && accepted < 0; i++) {
		accepted = accept(listener, NULL, NULL);
		if (accepted < 0)
			conform_sleep_ms(5);
	}
	EXPECT(what, accepted >= 0, 1);
	conform_write_all(client, "hi", 2);
	conform_expect_bytes(what, accepted, "hi");
	close(client);
	close(accepted);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	close(tcp_listen(AF_INET6));
	int v4 = bound(AF_INET, 0, 0), both = bound(AF_INET6, 0, 0);
	int port = tcp_port(v4, false), dual = tcp_port(both, false), listening, reuse;
	int v6 = bound(AF_INET6, port, 1);
	/* Bound, but not listening. */
	struct sockaddr_storage address;
	socklen_t length = tcp_loopback(AF_INET, 0, &address), size = sizeof listening;
	int idle = BUILD(socket(AF_INET, SOCK_STREAM, 0));
	BUILD(conform_bind(idle, (struct sockaddr *)&address, length));
	int idle_port = tcp_port(idle, false), fresh = BUILD(socket(AF_INET, SOCK_STREAM, 0));
	conform_ready();
	conform_wait();
	EXPECT("port of the IPv4 listener", tcp_port(v4, false), port);
	EXPECT("port of the IPv6 listener", tcp_port(v6, false), port);
	EXPECT("port of a socket that is only bound", tcp_port(idle, false), idle_port);
	EXPECT("port of a fresh socket", tcp_port(fresh, false), 0);
	reach("IPv4 listener", v4, AF_INET, port);
	reach("IPv6 listener on the same port", v6, AF_INET6, port);
	reach("listener of both, over IPv4", both, AF_INET, dual);
	reach("listener of both, over IPv6", both, AF_INET6, dual);
	BUILD(getsockopt(idle, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size));
	EXPECT("bound socket listens", listening, 0);
	BUILD(getsockopt(v4, SOL_SOCKET, SO_REUSEADDR, &reuse, &size));
	EXPECT("SO_REUSEADDR", reuse, 1);
	EXPECT("non-blocking listener", fcntl(v4, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	EXPECT("close-on-exec listener", fcntl(v4, F_GETFD), FD_CLOEXEC);
	conform_pass();
}
