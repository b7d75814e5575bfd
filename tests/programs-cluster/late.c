/*
 * Processes that connect to each other anew before and after a move: late INDEX PORT FILE HOST...
 * Process INDEX believes to be on the INDEX-th host, and listens at PORT + INDEX. All connect to all, by IPv4 and IPv6, bound to their
 * own address or not, waiting or not, and what bind, connect, listen, accept, getpeername and getsockname say must be
 * what the hosts' addresses say; then again once FILE is there. The first process of each host also listens at PORT + 50, from
 * the beginning, and at PORT + 51, only after the move: the same ports on all hosts.
 */
#include "split.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

enum { MOST = 8, COMMON = 50, LATER = 51, PATIENCE_MS = 30000 };

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static int own, count, port;
static union address hosts[MOST][2];
static char *names[MOST];

static socklen_t size_of(int family)
{
	return family ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

static union address with_port(union address address, int number)
{
	address.v4.sin_port = htons((uint16_t)number);
	return address;
}

static union address nobody(int family, int number)
{
	union address address;
	memset(&address, 0, sizeof address);
	address.any.sa_family = family ? AF_INET6 : AF_INET;
	return with_port(address, number);
}

static const char *text(const union address *address)
{
	static char texts[4][80];
	static int next;
	char ip[INET6_ADDRSTRLEN] = "?";
	int v6 = address->any.sa_family == AF_INET6;
	inet_ntop(address->any.sa_family, v6 ? (void *)&address->v6.sin6_addr : (void *)&address->v4.sin_addr, ip, sizeof ip);
	char *to = texts[next++ % 4];
	snprintf(to, sizeof texts[0], "%s port %d", ip, ntohs(address->v4.sin_port));
	return to;
}

/* The port 0 stands for any. */
static void must_be(const char *what, const union address *found, socklen_t length, union address wanted)
{
	int family = wanted.any.sa_family == AF_INET6;
	bool same = length == size_of(family) && found->any.sa_family == wanted.any.sa_family;
	if (family)
		same = same && !memcmp(&found->v6.sin6_addr, &wanted.v6.sin6_addr, sizeof wanted.v6.sin6_addr);
	else
		same = same && found->v4.sin_addr.s_addr == wanted.v4.sin_addr.s_addr;
	if (!same || (wanted.v4.sin_port && found->v4.sin_port != wanted.v4.sin_port))
		fail("%d: %s is %s, not %s", own, what, text(found), text(&wanted));
}

static union address own_name(int fd, union address wanted, const char *what)
{
	union address found;
	socklen_t length = sizeof found;
	MUST(getsockname(fd, &found.any, &length));
	must_be(what, &found, length, wanted);
	return found;
}

static int listener(int family, int number, bool waits)
{
	int fd = (int)MUST(socket(family ? AF_INET6 : AF_INET, SOCK_STREAM | (waits ? 0 : SOCK_NONBLOCK), 0)), on = 1;
	MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	if (family)
		MUST(setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on));
	union address any = nobody(family, number);
	if (bind(fd, &any.any, size_of(family)) < 0)
		fail("%d: bind port %d: %s", own, number, strerror(errno));
	own_name(fd, any, "a bound socket");
	MUST(listen(fd, 16));
	own_name(fd, any, "a listening socket");
	return fd;
}

/* Connects once, in one of four ways. */
static int try(int family, union address to, int way)
{
	int fd = (int)MUST(socket(family ? AF_INET6 : AF_INET, SOCK_STREAM | (way & 1 ? SOCK_NONBLOCK : 0), 0));
	if (way & 2) {
		union address here = with_port(hosts[own][family], 0);
		if (bind(fd, &here.any, size_of(family)) < 0)
			fail("%d: bind to %s: %s", own, text(&here), strerror(errno));
		own_name(fd, here, "a socket bound to the own address");
	}
	int error = 0;
	socklen_t length = sizeof error;
	if (connect(fd, &to.any, size_of(family)) < 0) {
		error = errno;
		if (error == EINPROGRESS && way & 1) {
			struct pollfd poll_fd = { .fd = fd, .events = POLLOUT };
			MUST(poll(&poll_fd, 1, PATIENCE_MS));
			MUST(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length));
		}
	}
	if (!error) {
		MUST(fcntl(fd, F_SETFL, 0));
		return fd;
	}
	close(fd);
	if (error != ECONNREFUSED)
		fail("%d: connect to %s: %s", own, text(&to), strerror(error));
	return -1;
}

/* Who answers must be the one who is meant. */
static void call(int family, int to, int number, int who, int way)
{
	union address address = with_port(hosts[to][family], number);
	int fd = -1;
	for (int waited = 0; (fd = try(family, address, way)) < 0; waited += 50) {
		if (waited > PATIENCE_MS)
			fail("%d: nobody listens at %s", own, text(&address));
		pace(50000);
	}
	union address found;
	socklen_t length = sizeof found;
	MUST(getpeername(fd, &found.any, &length));
	must_be("the peer", &found, length, address);
	found = own_name(fd, with_port(hosts[own][family], 0), "a connected socket");
	int said[2] = { own, ntohs(found.v4.sin_port) }, answer;
	write_all(fd, said, sizeof said);
	if (!read_all(fd, &answer, sizeof answer) || answer != who)
		fail("%d: %s is %d, not %d", own, text(&address), answer, who);
	close(fd);
}

/* Answers so many calls; what the caller calls itself must be what the calls here say. */
static void answer(int listening, int family, int number, int calls)
{
	while (calls-- > 0) {
		union address from;
		socklen_t length = sizeof from;
		int fd;
		while ((fd = accept4(listening, &from.any, &length, SOCK_CLOEXEC)) < 0) {
			if (errno != EAGAIN && errno != EINTR)
				fail("accept: %s", strerror(errno));
			struct pollfd poll_fd = { .fd = listening, .events = POLLIN };
			if (poll(&poll_fd, 1, PATIENCE_MS) == 0)
				fail("%d: nobody calls at port %d", own, number);
			length = sizeof from;
		}
		if (fcntl(fd, F_GETFD) != FD_CLOEXEC || fcntl(fd, F_GETFL) & O_NONBLOCK)
			fail("accept4 forgets flags");
		int said[2];
		if (!read_all(fd, said, sizeof said))
			fail("the caller said nothing");
		union address caller = with_port(hosts[said[0]][family], said[1]);
		must_be("accept's address", &from, length, caller);
		length = sizeof from;
		MUST(getpeername(fd, &from.any, &length));
		must_be("the caller", &from, length, caller);
		own_name(fd, with_port(hosts[own][family], number), "an accepted socket");
		write_all(fd, &own, sizeof own);
		close(fd);
	}
}

/* The first process of its host. */
static bool is_first(int index)
{
	for (int before = 0; before < index; before++)
		if (!strcmp(names[before], names[index]))
			return false;
	return true;
}

/* All call all at PORT + their index, or the first ones of each host at one port. */
static void exchange(const int listening[2], int common)
{
	pid_t child = (pid_t)MUST(fork());
	if (child == 0) {
		for (int family = 0; family < 2; family++)
			for (int to = 0; to < count; to++)
				if (!common || is_first(to))
					call(family, to, common ? port + common : port + to, to, own + to + family);
		_exit(0);
	}
	for (int family = 0; family < 2; family++)
		if (!common || is_first(own))
			answer(listening[family], family, common ? port + common : port + own, count);
	join(child);
}

int main(int argc, char **argv)
{
	split_name = "late";
	if (argc < 5 || argc - 4 > MOST)
		fail("usage: late INDEX PORT FILE HOST...");
	own = (int)number(argv[1]);
	port = (int)number(argv[2]);
	count = argc - 4;
	for (int index = 0; index < count; index++) {
		names[index] = argv[4 + index];
		struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
		if (getaddrinfo(names[index], NULL, &hints, &found))
			fail("no address of %s", names[index]);
		memcpy(&hosts[index][0].v4, found->ai_addr, sizeof hosts[index][0].v4);
		freeaddrinfo(found);
		char ip[INET_ADDRSTRLEN], ip6[64];
		inet_ntop(AF_INET, &hosts[index][0].v4.sin_addr, ip, sizeof ip);
		snprintf(ip6, sizeof ip6, "fd00:c::%s", ip);
		hosts[index][1] = nobody(1, 0);
		inet_pton(AF_INET6, ip6, &hosts[index][1].v6.sin6_addr);
	}
	int fds[2] = { listener(0, port + own, true), listener(1, port + own, false) };
	int common[2] = { -1, -1 }, later[2] = { -1, -1 };
	for (int family = 0; family < 2 && is_first(own); family++)
		common[family] = listener(family, port + COMMON, family);
	exchange(fds, 0);
	exchange(common, COMMON);
	say("started");
	while (access(argv[3], F_OK) < 0)
		pace(50000);
	for (int family = 0; family < 2 && is_first(own); family++) {
		own_name(common[family], nobody(family, port + COMMON), "a listening socket that has moved");
		later[family] = listener(family, port + LATER, family);
	}
	if (!is_first(own)) {
		int fd = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
		union address taken = nobody(0, port + COMMON);
		if (bind(fd, &taken.any, size_of(0)) == 0 || errno != EADDRINUSE)
			fail("%d: a port of the own host can be had twice", own);
		close(fd);
	}
	exchange(fds, 0);
	exchange(common, COMMON);
	exchange(later, LATER);
	say("right");
	return 0;
}
