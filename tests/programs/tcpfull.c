/* TCP connections whose receive window is full, with more waiting at the sender; in both directions at once. */
#include "tcp.h"

enum { SMALL = 16 * 1024, BLOCK = 4096 };

static size_t stuff(int fd, unsigned seed)
{
	size_t sent = 0;
	char block[BLOCK];
	BUILD(fcntl(fd, F_SETFL, O_NONBLOCK));
	/* A full queue once may be the kernel catching its breath: three times in a row is full. */
	for (int refusals = 0; refusals < 3;) {
		/* Every byte depends on its place in the stream. */
		for (size_t i = 0; i < BLOCK; i++)
			block[i] = (char)((sent + i) * 31 + (sent + i) / 251 + seed);
		ssize_t done = write(fd, block, BLOCK);
		if (done < 0 && errno != EAGAIN)
			conform_fail("write: %s", strerror(errno));
		if (done > 0)
			sent += (size_t)done;
		else
			refusals++, conform_sleep_ms(20);
	}
	BUILD(fcntl(fd, F_SETFL, 0));
	return sent;
}

static void expect_stream(const char *what, int fd, size_t length, unsigned seed)
{
	char block[BLOCK];
	for (size_t at = 0; at < length;) {
		size_t part = length - at < BLOCK ? length - at : BLOCK;
		conform_read_all(fd, block, part);
		for (size_t i = 0; i < part; i++)
			if (block[i] != (char)((at + i) * 31 + (at + i) / 251 + seed))
				conform_fail("%s: byte %zu of %zu is wrong", what, at + i, length);
		at += part;
	}
	conform_expect_nothing(what, fd);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int small[2], tuned[2], size = SMALL;
	int listener = tcp_listen(AF_INET);
	BUILD(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
	small[0] = BUILD(socket(AF_INET, SOCK_STREAM, 0));
	BUILD(setsockopt(small[0], SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
	struct sockaddr_storage address;
	socklen_t length = tcp_loopback(AF_INET, tcp_port(listener, false), &address);
	BUILD(connect(small[0], (struct sockaddr *)&address, length));
	small[1] = BUILD(accept(listener, NULL, NULL));
	close(listener);
	tcp_pair(AF_INET, tuned);
	size_t there = stuff(small[0], 1), back = stuff(small[1], 2), big = stuff(tuned[0], 3);
	conform_write_all(tuned[1], "against the stream", 18);
	conform_ready();
	conform_wait();
	expect_stream("full window", small[1], there, 1);
	expect_stream("full window the other way", small[0], back, 2);
	conform_expect_bytes("bytes against the stream", tuned[0], "against the stream");
	expect_stream("full window of automatic size", tuned[1], big, 3);
	conform_write_all(small[0], "on", 2);
	conform_expect_bytes("bytes sent afterwards", small[1], "on");
	close(tuned[0]);
	conform_expect_eof("closed", tuned[1]);
	conform_pass();
}
