/* TCP connections that nobody has accepted yet, one shut by its client; and a blocked accept. */
#include "tcp.h"

enum { PENDING = 4 };
static int waited_for;

static void accepts(void *unused)
{
	(void)unused;
	conform_mark("accepting");
	int fd = BUILD(accept(waited_for, NULL, NULL));
	conform_expect_bytes("bytes of the connection that accept waited for", fd, "you");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int listener = tcp_listen(AF_INET), clients[PENDING], ports[PENDING], port = tcp_port(listener, false);
	bool seen[PENDING] = { false };
	for (int i = 0; i < PENDING; i++) {
		clients[i] = tcp_connect(AF_INET, port);
		ports[i] = tcp_port(clients[i], false);
	}
	BUILD(shutdown(clients[1], SHUT_WR));
	waited_for = tcp_listen(AF_INET);
	pid_t process = conform_spawn(accepts, NULL);
	conform_await("accepting");
	conform_sleep_ms(10);
	conform_ready();
	conform_wait();
	for (int i = 0; i < PENDING; i++) {
		char text[16];
		int fd = BUILD(accept(listener, NULL, NULL)), peer = tcp_port(fd, true), which = 0;
		while (which < PENDING && ports[which] != peer)
			which++;
		if (which == PENDING || seen[which])
			conform_fail("a connection from port %d that nobody made", peer);
		seen[which] = true;
		if (which == 1) {
			conform_expect_eof("client that shut its direction", fd);
		} else {
			snprintf(text, sizeof text, "hello %d", which);
			conform_write_all(clients[which], text, strlen(text));
			conform_expect_bytes("bytes of a client that had waited", fd, text);
		}
		conform_write_all(fd, "ok", 2);
		conform_expect_bytes("answer", clients[which], "ok");
	}
	conform_write_all(tcp_connect(AF_INET, tcp_port(waited_for, false)), "you", 3);
	conform_join(process);
	conform_pass();
}
