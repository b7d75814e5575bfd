/* Window clamps of TCP connections (TCP_WINDOW_CLAMP) of either end, with bytes unread, and one that nobody set. */
#include "tcp.h"

static int clamp(int fd)
{
	int found = -1;
	socklen_t length = sizeof found;
	BUILD(getsockopt(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, &found, &length));
	return found;
}

int main(int argc, char **argv)
{
	enum { FIRST = 20000, SECOND = 30000 };
	conform_start(argc, argv);
	int both[2], half[2], first = FIRST, second = SECOND;
	tcp_pair(AF_INET, both);
	tcp_pair(AF_INET, half);
	BUILD(setsockopt(both[0], IPPROTO_TCP, TCP_WINDOW_CLAMP, &first, sizeof first));
	BUILD(setsockopt(both[1], IPPROTO_TCP, TCP_WINDOW_CLAMP, &second, sizeof second));
	BUILD(setsockopt(half[1], IPPROTO_TCP, TCP_WINDOW_CLAMP, &first, sizeof first));
	conform_write_all(both[0], "unread", 6);
	conform_write_all(half[1], "unread", 6);
	int unset = clamp(half[0]);
	conform_ready();
	conform_wait();
	EXPECT("clamp of a client", clamp(both[0]), FIRST);
	EXPECT("clamp of a server", clamp(both[1]), SECOND);
	EXPECT("clamp of one end", clamp(half[1]), FIRST);
	EXPECT("clamp that nobody has set", clamp(half[0]), unset);
	conform_expect_bytes("bytes to the server", both[1], "unread");
	conform_expect_bytes("bytes to the client", half[0], "unread");
	/* More than the clamp, through it. */
	static char sent[100000], got[sizeof sent];
	conform_fill(sent, sizeof sent, 7);
	pid_t child = fork();
	BUILD(child);
	if (child == 0) {
		conform_write_all(both[0], sent, sizeof sent);
		_exit(0);
	}
	conform_read_all(both[1], got, sizeof got);
	conform_verify("bytes through the clamp", got, sizeof got, 7);
	conform_join(child);
	conform_pass();
}
