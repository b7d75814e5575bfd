/* Options of sockets that can be read and set: each is set to something else than the default where that is allowed. */
#include "conform.h"
#include <netinet/in.h>
#include <sys/socket.h>

enum { UNIX, UDP4, UDP6, TCP4, TCP6, LISTENER, SOCKETS };

static const struct option {
	int level, name, value;
	const char *text;
} options[] = {
	{ SOL_SOCKET, 1, 1, "SO_DEBUG" },
	{ SOL_SOCKET, 11, 1, "SO_NO_CHECK" },
	{ SOL_SOCKET, 34, 1, "SO_PASSSEC" },
	{ SOL_SOCKET, 36, 5, "SO_MARK" },
	{ SOL_SOCKET, 40, 1, "SO_RXQ_OVFL" },
	{ SOL_SOCKET, 41, 1, "SO_WIFI_STATUS" },
	{ SOL_SOCKET, 42, 3, "SO_PEEK_OFF" },
	{ SOL_SOCKET, 43, 1, "SO_NOFCS" },
	{ SOL_SOCKET, 45, 1, "SO_SELECT_ERR_QUEUE" },
	{ SOL_SOCKET, 47, 1 << 20, "SO_MAX_PACING_RATE" },
	{ SOL_SOCKET, 60, 1, "SO_ZEROCOPY" },
	{ SOL_SOCKET, 62, 1, "SO_BINDTOIFINDEX" },
	{ SOL_SOCKET, 64, 1, "SO_TIMESTAMPNS_NEW" },
	{ SOL_SOCKET, 65, 0x50, "SO_TIMESTAMPING_NEW" },
	{ SOL_SOCKET, 69, 1, "SO_PREFER_BUSY_POLL" },
	{ SOL_SOCKET, 74, 0, "SO_TXREHASH" },
	{ SOL_SOCKET, 75, 1, "SO_RCVMARK" },
	{ SOL_SOCKET, 76, 1, "SO_PASSPIDFD" },
	{ SOL_SOCKET, 82, 1, "SO_RCVPRIORITY" },
	{ SOL_SOCKET, 83, 0, "SO_PASSRIGHTS" },
	{ IPPROTO_IP, 6, 1, "IP_RECVOPTS" },
	{ IPPROTO_IP, 7, 1, "IP_RETOPTS" },
	{ IPPROTO_IP, 18, 1, "IP_PASSSEC" },
	{ IPPROTO_IP, 20, 1, "IP_RECVORIGDSTADDR" },
	{ IPPROTO_IP, 21, 1, "IP_MINTTL" },
	{ IPPROTO_IP, 23, 1, "IP_CHECKSUM" },
	{ IPPROTO_IP, 25, 1, "IP_RECVFRAGSIZE" },
	{ IPPROTO_IP, 26, 1, "IP_RECVERR_RFC4884" },
	{ IPPROTO_IP, 51, 30000 | 40000 << 16, "IP_LOCAL_PORT_RANGE" },
	{ IPPROTO_IPV6, 2, 1, "IPV6_2292PKTINFO" },
	{ IPPROTO_IPV6, 8, 1, "IPV6_2292HOPLIMIT" },
	{ IPPROTO_IPV6, 30, 1, "IPV6_ROUTER_ALERT_ISOLATE" },
	{ IPPROTO_IPV6, 31, 1, "IPV6_RECVERR_RFC4884" },
	{ IPPROTO_IPV6, 33, 1, "IPV6_FLOWINFO_SEND" },
	{ IPPROTO_IPV6, 51, 1, "IPV6_RECVHOPLIMIT" },
	{ IPPROTO_IPV6, 53, 1, "IPV6_RECVHOPOPTS" },
	{ IPPROTO_IPV6, 56, 1, "IPV6_RECVRTHDR" },
	{ IPPROTO_IPV6, 58, 1, "IPV6_RECVDSTOPTS" },
	{ IPPROTO_IPV6, 60, 1, "IPV6_RECVPATHMTU" },
	{ IPPROTO_IPV6, 62, 1, "IPV6_DONTFRAG" },
	{ IPPROTO_IPV6, 66, 1, "IPV6_RECVTCLASS" },
	{ IPPROTO_IPV6, 70, 0, "IPV6_AUTOFLOWLABEL" },
	{ IPPROTO_IPV6, 72, 2, "IPV6_ADDR_PREFERENCES" },
	{ IPPROTO_IPV6, 73, 1, "IPV6_MINHOPCOUNT" },
	{ IPPROTO_IPV6, 74, 1, "IPV6_RECVORIGDSTADDR" },
	{ IPPROTO_IPV6, 77, 1, "IPV6_RECVFRAGSIZE" },
	{ IPPROTO_TCP, 2, 1000, "TCP_MAXSEG" },
	{ IPPROTO_TCP, 16, 1, "TCP_THIN_LINEAR_TIMEOUTS" },
	{ IPPROTO_TCP, 27, 1, "TCP_SAVE_SYN" },
	{ IPPROTO_TCP, 30, 1, "TCP_FASTOPEN_CONNECT" },
	{ IPPROTO_TCP, 34, 1, "TCP_FASTOPEN_NO_COOKIE" },
	{ IPPROTO_TCP, 36, 1, "TCP_INQ" },
	{ IPPROTO_TCP, 37, 100, "TCP_TX_DELAY" },
	{ IPPROTO_TCP, 44, 5000, "TCP_RTO_MAX_MS" },
	{ IPPROTO_TCP, 45, 100000, "TCP_RTO_MIN_US" },
	{ IPPROTO_TCP, 46, 100000, "TCP_DELACK_MAX_US" },
	{ IPPROTO_UDP, 1, 1, "UDP_CORK" },
	{ IPPROTO_UDP, 101, 1, "UDP_NO_CHECK6_TX" },
	{ IPPROTO_UDP, 102, 1, "UDP_NO_CHECK6_RX" },
	{ IPPROTO_UDP, 103, 1200, "UDP_SEGMENT" },
	{ IPPROTO_UDP, 104, 1, "UDP_GRO" },
};
enum { OPTIONS = sizeof options / sizeof *options, LONGEST = 64 };

static struct value {
	socklen_t length;
	char bytes[LONGEST];
} before[SOCKETS][OPTIONS];

static struct value value(int fd, int option)
{
	struct value found = { .length = LONGEST };
	if (getsockopt(fd, options[option].level, options[option].name, found.bytes, &found.length) != 0)
		found.length = LONGEST + 1;
	return found;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fds[SOCKETS] = {
		(int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0)), (int)BUILD(socket(AF_INET, SOCK_DGRAM, 0)),
		socket(AF_INET6, SOCK_DGRAM, 0),	     (int)BUILD(socket(AF_INET, SOCK_STREAM, 0)),
		socket(AF_INET6, SOCK_STREAM, 0),	     (int)BUILD(socket(AF_INET, SOCK_STREAM, 0)),
	};
	for (int s = 0; s < SOCKETS; s++)
		for (int i = 0; i < OPTIONS; i++)
			/* Not every kernel has, and not every user may set, each of them. */
			if (fds[s] >= 0)
				(void)!setsockopt(fds[s], options[i].level, options[i].name, &options[i].value, sizeof(int));
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	BUILD(conform_bind(fds[LISTENER], (struct sockaddr *)&at, sizeof at));
	BUILD(listen(fds[LISTENER], 4));
	for (int s = 0; s < SOCKETS; s++)
		for (int i = 0; i < OPTIONS; i++)
			before[s][i] = value(fds[s], i);
	conform_ready();
	conform_wait();
	for (int s = 0; s < SOCKETS; s++)
		for (int i = 0; i < OPTIONS; i++) {
			struct value now = value(fds[s], i);
			if (now.length != before[s][i].length || memcmp(now.bytes, before[s][i].bytes, LONGEST))
				conform_fail("%s of socket %d: %d rather than %d (%u, %u bytes)", options[i].text, s,
					     *(int *)now.bytes, *(int *)before[s][i].bytes, now.length, before[s][i].length);
		}
	conform_pass();
}
