/*
 * TCP connections whose sender has closed its descriptor, or has ended, behind more bytes than the reader has room for:
 * the kernel goes on sending, and the reader gets all of them and then the end.
 */
#include "tcp.h"

static int between[2];

static void ends(void *unused)
{
	(void)unused;
	close(between[1]);
	char number[32];
	snprintf(number, sizeof number, "sent-%zu", tcp_stuff(between[0], 4));
	conform_mark(number);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int closed[2], last[2], tuned[2], narrowed[2], small = 4096;
	tcp_small_pair(AF_INET, closed);
	size_t of_closed = tcp_stuff(closed[0], 1);
	BUILD(close(closed[0]));
	/* Its reader has shut its own direction before. */
	tcp_small_pair(AF_INET, last);
	BUILD(shutdown(last[1], SHUT_WR));
	conform_expect_eof("before", last[0]);
	size_t of_last = tcp_stuff(last[0], 2);
	BUILD(close(last[0]));
	tcp_pair(AF_INET, tuned);
	size_t of_tuned = tcp_stuff(tuned[0], 3);
	BUILD(close(tuned[0]));
	/* Its reader's buffer has become small only later, and with it the largest window. */
	tcp_pair(AF_INET, narrowed);
	BUILD(setsockopt(narrowed[1], SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
	static char whole[1 << 20];
	conform_fill(whole, sizeof whole, 5);
	ssize_t of_narrowed = BUILD(send(narrowed[0], whole, sizeof whole, MSG_DONTWAIT));
	BUILD(close(narrowed[0]));
	tcp_small_pair(AF_INET, between);
	pid_t process = conform_spawn(ends, NULL);
	close(between[0]);
	conform_join(process);
	conform_ready();
	conform_wait();
	tcp_expect_stream("closed", closed[1], of_closed, 1);
	conform_expect_eof("closed", closed[1]);
	tcp_expect_stream("closed after the reader's end", last[1], of_last, 2);
	conform_expect_eof("closed after the reader's end", last[1]);
	tcp_expect_stream("buffers of automatic size", tuned[1], of_tuned, 3);
	conform_expect_eof("buffers of automatic size", tuned[1]);
	/* So small the window lets some 40 KB through in a second. */
	int large = 1 << 20;
	BUILD(setsockopt(narrowed[1], SOL_SOCKET, SO_RCVBUF, &large, sizeof large));
	BUILD(setsockopt(narrowed[1], IPPROTO_TCP, TCP_WINDOW_CLAMP, &large, sizeof large));
	static char found[sizeof whole];
	conform_read_all(narrowed[1], found, (size_t)of_narrowed);
	EXPECT("a buffer made small later", memcmp(found, whole, (size_t)of_narrowed), 0);
	conform_expect_eof("a buffer made small later", narrowed[1]);
	char number[32];
	snprintf(number, sizeof number, "sent-%zu", tcp_drain("of a process that has ended", between[1], 4));
	conform_await(number);
	conform_pass();
}
