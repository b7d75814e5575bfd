/* Options of TCP sockets, connected and listening, and their buffer sizes. */
#include "tcp.h"

static const struct option {
	int level, name, value;
	const char *text;
} options[] = {
	{ SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE" },
	{ SOL_SOCKET, SO_REUSEADDR, 1, "SO_REUSEADDR" },
	{ SOL_SOCKET, SO_SNDBUF, 40000, "SO_SNDBUF" },
	{ SOL_SOCKET, SO_RCVBUF, 50000, "SO_RCVBUF" },
	{ SOL_SOCKET, SO_OOBINLINE, 1, "SO_OOBINLINE" },
	{ SOL_SOCKET, SO_RCVLOWAT, 3, "SO_RCVLOWAT" },
	{ SOL_SOCKET, SO_PRIORITY, 4, "SO_PRIORITY" },
	{ IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY" },
	{ IPPROTO_TCP, TCP_KEEPIDLE, 300, "TCP_KEEPIDLE" },
	{ IPPROTO_TCP, TCP_KEEPINTVL, 20, "TCP_KEEPINTVL" },
	{ IPPROTO_TCP, TCP_KEEPCNT, 9, "TCP_KEEPCNT" },
	{ IPPROTO_TCP, TCP_USER_TIMEOUT, 7000, "TCP_USER_TIMEOUT" },
	{ IPPROTO_IP, IP_TOS, 16, "IP_TOS" },
};
enum { OPTIONS = sizeof options / sizeof *options };

static int value(int fd, int option)
{
	int found = -1;
	socklen_t length = sizeof found;
	BUILD(getsockopt(fd, options[option].level, options[option].name, &found, &length));
	return found;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int pair[2], listener = tcp_listen(AF_INET), before[2][OPTIONS];
	tcp_pair(AF_INET, pair);
	struct linger linger = { 1, 5 }, found;
	struct timeval time = { 3, 0 }, found_time;
	socklen_t length = sizeof found;
	int sockets[2] = { pair[0], listener };
	for (int s = 0; s < 2; s++)
		for (int i = 0; i < OPTIONS; i++)
			BUILD(setsockopt(sockets[s], options[i].level, options[i].name, &options[i].value, sizeof(int)));
	/* Read when all are set: IP_TOS changes SO_PRIORITY, for one. */
	for (int s = 0; s < 2; s++)
		for (int i = 0; i < OPTIONS; i++)
			before[s][i] = value(sockets[s], i);
	BUILD(setsockopt(pair[0], SOL_SOCKET, SO_LINGER, &linger, sizeof linger));
	BUILD(setsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
	BUILD(fcntl(pair[0], F_SETFL, O_NONBLOCK));
	conform_ready();
	conform_wait();
	for (int s = 0; s < 2; s++)
		for (int i = 0; i < OPTIONS; i++)
			EXPECT(options[i].text, value(sockets[s], i), before[s][i]);
	BUILD(getsockopt(pair[0], SOL_SOCKET, SO_LINGER, &found, &length));
	EXPECT("SO_LINGER on", found.l_onoff, 1);
	EXPECT("SO_LINGER time", found.l_linger, 5);
	length = sizeof found_time;
	BUILD(getsockopt(pair[0], SOL_SOCKET, SO_RCVTIMEO, &found_time, &length));
	EXPECT("SO_RCVTIMEO", found_time.tv_sec, 3);
	EXPECT("non-blocking", fcntl(pair[0], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	EXPECT("blocking peer", fcntl(pair[1], F_GETFL) & O_NONBLOCK, 0);
	int untouched = 1;
	length = sizeof untouched;
	BUILD(getsockopt(pair[1], IPPROTO_TCP, TCP_NODELAY, &untouched, &length));
	EXPECT("TCP_NODELAY of the peer", untouched, 0);
	conform_pass();
}
