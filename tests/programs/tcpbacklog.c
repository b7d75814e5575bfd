/*
 * Connections that nobody has accepted yet, in their order: with and without bytes, with clients that have closed or have
 * ended, also behind more bytes than there is room for. And some without bytes alone, made in another order than their
 * sockets.
 */
#include "tcp.h"

enum { OPEN, CLOSED, ENDED, EMPTY_CLOSED, SHUT, EMPTY, FULL_CLOSED, PENDING, QUIET = 5 };
static int port;

static void ends(void *unused)
{
	(void)unused;
	conform_write_all(tcp_connect(AF_INET, port), "of the ended", 12);
}

static int next(int listener, int from)
{
	struct sockaddr_in peer;
	socklen_t length = sizeof peer;
	int fd = (int)BUILD(accept(listener, (struct sockaddr *)&peer, &length));
	if (from)
		EXPECT("the client's port", ntohs(peer.sin_port), from);
	EXPECT("the client's address", ntohl(peer.sin_addr.s_addr), INADDR_LOOPBACK);
	return fd;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	int listener = tcp_listen(AF_INET), quiet = tcp_listen(AF_INET), clients[PENDING], ports[PENDING];
	port = tcp_port(listener, false);
	for (int i = 0; i < PENDING; i++) {
		if (i == ENDED) {
			conform_join(conform_spawn(ends, NULL));
			ports[i] = 0;
			continue;
		}
		clients[i] = tcp_connect(AF_INET, port);
		ports[i] = tcp_port(clients[i], false);
	}
	conform_write_all(clients[OPEN], "open", 4);
	conform_write_all(clients[CLOSED], "closed", 6);
	BUILD(close(clients[CLOSED]));
	BUILD(close(clients[EMPTY_CLOSED]));
	conform_write_all(clients[SHUT], "shut", 4);
	BUILD(shutdown(clients[SHUT], SHUT_WR));
	size_t full = tcp_stuff(clients[FULL_CLOSED], 1);
	BUILD(close(clients[FULL_CLOSED]));
	int later[QUIET], of_later[QUIET];
	struct sockaddr_storage address;
	socklen_t length = tcp_loopback(AF_INET, tcp_port(quiet, false), &address);
	for (int i = 0; i < QUIET; i++)
		later[i] = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	for (int i = QUIET - 1; i >= 0; i--) {
		BUILD(connect(later[i], (struct sockaddr *)&address, length));
		of_later[i] = tcp_port(later[i], false);
	}
	conform_ready();
	conform_wait();
	for (int i = QUIET - 1; i >= 0; i--) {
		int fd = next(quiet, of_later[i]);
		conform_write_all(later[i], "hello", 5);
		conform_expect_bytes("a client that had sent nothing", fd, "hello");
	}
	static const char *const sent[PENDING] = { "open", "closed", "of the ended", "", "shut", "", NULL };
	for (int i = 0; i < PENDING; i++) {
		int fd = next(listener, ports[i]);
		if (sent[i])
			conform_expect_bytes("bytes of a connection not yet accepted", fd, sent[i]);
		else
			EXPECT("bytes behind a full window", tcp_drain("behind a full window", fd, 1), full);
		if (i == OPEN || i == EMPTY)
			conform_expect_nothing("an open client", fd);
		else
			conform_expect_eof("a client's end", fd);
		if (i == OPEN || i == EMPTY || i == SHUT) {
			conform_write_all(fd, "ok", 2);
			conform_expect_bytes("answer", clients[i], "ok");
		}
	}
	EXPECT("no more", fcntl(listener, F_SETFL, O_NONBLOCK), 0);
	EXPECT_ERROR("no more", accept(listener, NULL, NULL), EAGAIN);
	conform_pass();
}
