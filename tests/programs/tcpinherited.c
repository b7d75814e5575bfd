/* Connections that nobody has accepted yet have the options that their listener had when they came. */
#include "tcp.h"

static const struct option {
	const char *what;
	int level, name, value;
} options[] = {
	{ "TCP_NODELAY", IPPROTO_TCP, TCP_NODELAY, 1 },
	{ "TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 33 },
	{ "SO_KEEPALIVE", SOL_SOCKET, SO_KEEPALIVE, 1 },
	{ "TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 9999 },
	{ "IP_TOS", IPPROTO_IP, IP_TOS, 0x40 },
	{ "IP_TTL", IPPROTO_IP, IP_TTL, 55 },
	{ "SO_RCVLOWAT", SOL_SOCKET, SO_RCVLOWAT, 3 },
	{ "SO_OOBINLINE", SOL_SOCKET, SO_OOBINLINE, 1 },
};
enum { OPTIONS = sizeof options / sizeof *options, CONNECTIONS = 2 };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int listener = tcp_listen(AF_INET), clients[CONNECTIONS], before[OPTIONS];
	for (int i = 0; i < OPTIONS; i++)
		BUILD(setsockopt(listener, options[i].level, options[i].name, &options[i].value, sizeof(int)));
	/* One more, to see what this kernel hands on. */
	int sample = tcp_connect(AF_INET, tcp_port(listener, false));
	int accepted = (int)BUILD(accept(listener, NULL, NULL));
	for (int i = 0; i < OPTIONS; i++) {
		socklen_t length = sizeof(int);
		BUILD(getsockopt(accepted, options[i].level, options[i].name, &before[i], &length));
	}
	BUILD(close(sample));
	BUILD(close(accepted));
	for (int i = 0; i < CONNECTIONS; i++)
		clients[i] = tcp_connect(AF_INET, tcp_port(listener, false));
	conform_write_all(clients[0], "hello", 5);
	conform_ready();
	conform_wait();
	for (int c = 0; c < CONNECTIONS; c++) {
		int fd = (int)BUILD(accept(listener, NULL, NULL));
		for (int i = 0; i < OPTIONS; i++) {
			int value = 0;
			socklen_t length = sizeof value;
			BUILD(getsockopt(fd, options[i].level, options[i].name, &value, &length));
			EXPECT(options[i].what, value, before[i]);
		}
		if (c > 0)
			conform_write_all(clients[c], "hello", 5);
		conform_expect_bytes("bytes of a connection", fd, "hello");
	}
	conform_pass();
}
