/*
 * Connections that nobody has answered yet while their ends move: connecting serve PORT FILE CALLER
 * fills the queue of its listening socket by a connection of its own, and lets others in once FILE is there;
 * connecting ask PORT FILE HOST has a connection made that is not answered until then. Both addresses must be
 * what the hosts' names say.
 */
#include "split.h"
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

enum { PATIENCE_MS = 60000, EACH_MS = 1000 };

#ifndef TCP_RTO_MAX_MS
#define TCP_RTO_MAX_MS 44
#endif

static struct sockaddr_in address_of(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	if (getaddrinfo(host, port, &hints, &found))
		fail("no address of %s", host);
	return *(struct sockaddr_in *)found->ai_addr;
}

static void wait_for_file(const char *path)
{
	for (int waited = 0; access(path, F_OK) < 0; waited += 20) {
		if (waited > PATIENCE_MS)
			fail("%s never came", path);
		pace(20000);
	}
}

/* By which the asker knows that the queue is full. */
static const char *full(const char *file, const char *port)
{
	static char path[256];
	snprintf(path, sizeof path, "%s.%s", file, port);
	return path;
}

static int begin(struct sockaddr_in to)
{
	int fd = (int)MUST(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)), each = EACH_MS;
	/* Kernels before 6.15 don't have it and ask less often from time to time. */
	(void)!setsockopt(fd, IPPROTO_TCP, TCP_RTO_MAX_MS, &each, sizeof each);
	if (connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno != EINPROGRESS)
		fail("connect: %s", strerror(errno));
	return fd;
}

static void finish(int fd)
{
	struct pollfd polled = { .fd = fd, .events = POLLOUT };
	int error = -1;
	socklen_t size = sizeof error;
	if (MUST(poll(&polled, 1, PATIENCE_MS)) != 1)
		fail("nobody answers");
	MUST(getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size));
	if (error)
		fail("connect: %s", strerror(error));
	MUST(fcntl(fd, F_SETFL, 0));
}

static void must_be(const char *what, struct sockaddr_in found, struct sockaddr_in wanted)
{
	if (found.sin_addr.s_addr != wanted.sin_addr.s_addr)
		fail("%s is %#x, not %#x", what, ntohl(found.sin_addr.s_addr), ntohl(wanted.sin_addr.s_addr));
}

static void serve(const char *port, const char *file, const char *caller)
{
	int server = (int)MUST(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
	MUST(setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)number(port)) };
	MUST(bind(server, (struct sockaddr *)&address, sizeof address));
	MUST(listen(server, 0));
	address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	int own = begin(address);
	finish(own);
	close((int)MUST(open(full(file, port), O_CREAT | O_WRONLY, 0666)));
	wait_for_file(file);
	MUST(listen(server, 16));
	for (char who = 0; who != 'a';) {
		struct sockaddr_in peer;
		socklen_t size = sizeof peer;
		int fd = (int)MUST(accept(server, (struct sockaddr *)&peer, &size));
		if (own >= 0)
			write_all(own, "s", 1);
		own = -1;
		if (!read_all(fd, &who, 1))
			fail("a connection without a word");
		if (who == 'a') {
			must_be("the caller", peer, address_of(caller, port));
			write_all(fd, "y", 1);
		}
	}
}

static void ask(const char *port, const char *file, const char *host)
{
	wait_for_file(full(file, port));
	struct sockaddr_in to = address_of(host, port), peer;
	int fd = begin(to);
	struct tcp_info info;
	socklen_t size = sizeof info;
	MUST(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size));
	if (info.tcpi_state != TCP_SYN_SENT)
		fail("a full listener answers: state %d", info.tcpi_state);
	say("started");
	finish(fd);
	size = sizeof peer;
	MUST(getpeername(fd, (struct sockaddr *)&peer, &size));
	must_be("the peer", peer, to);
	char answer = 0;
	write_all(fd, "a", 1);
	if (!read_all(fd, &answer, 1) || answer != 'y')
		fail("no answer");
	say("right");
}

int main(int argc, char **argv)
{
	split_name = "connecting";
	if (argc == 5 && !strcmp(argv[1], "serve"))
		serve(argv[2], argv[3], argv[4]);
	else if (argc == 5 && !strcmp(argv[1], "ask"))
		ask(argv[2], argv[3], argv[4]);
	else
		fail("usage: connecting serve PORT FILE CALLER | ask PORT FILE HOST");
	return 0;
}
