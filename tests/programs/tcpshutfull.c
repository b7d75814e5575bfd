/*
 * TCP connections shut for writing behind more bytes than the other end has room for: the FIN is not acknowledged
 * (FIN-WAIT-1, CLOSING, LAST-ACK) before somebody reads. One way, both ways, after the other end's FIN, of either size of
 * buffer; and between two processes.
 */
#include "tcp.h"

static int between[2];
static size_t there, back;

static void child(void *unused)
{
	(void)unused;
	close(between[0]);
	back = tcp_stuff(between[1], 8);
	BUILD(shutdown(between[1], SHUT_WR));
	conform_mark("born");
	conform_wait();
	tcp_expect_stream("between processes", between[1], there, 7);
	conform_expect_eof("between processes", between[1]);
	EXPECT_ERROR("shut in the child", write(between[1], "x", 1), EPIPE);
	char number[32];
	snprintf(number, sizeof number, "back-%zu", back);
	conform_mark(number);
}

static void expect_end(const char *what, int reader, int shut, size_t length, unsigned seed)
{
	tcp_expect_stream(what, reader, length, seed);
	conform_expect_eof(what, reader);
	EXPECT_ERROR(what, write(shut, "x", 1), EPIPE);
}

static void expect_answer(const char *what, int from, int to)
{
	conform_write_all(from, "answer", 6);
	conform_expect_bytes(what, to, "answer");
	close(from);
	conform_expect_eof(what, to);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	int one[2], both[2], last[2], tuned[2];
	tcp_small_pair(AF_INET, between);
	there = tcp_stuff(between[0], 7);
	BUILD(shutdown(between[0], SHUT_WR));
	pid_t process = conform_spawn(child, NULL);
	close(between[1]);
	conform_await("born");
	tcp_small_pair(AF_INET, one);
	size_t of_one = tcp_stuff(one[0], 1);
	BUILD(shutdown(one[0], SHUT_WR));
	tcp_small_pair(AF_INET, both);
	size_t of_both[2] = { tcp_stuff(both[0], 2), tcp_stuff(both[1], 3) };
	BUILD(shutdown(both[0], SHUT_WR));
	BUILD(shutdown(both[1], SHUT_WR));
	/* The end that shuts last, and is not acknowledged: LAST-ACK. */
	tcp_small_pair(AF_INET, last);
	BUILD(shutdown(last[1], SHUT_WR));
	conform_expect_eof("before", last[0]);
	size_t of_last = tcp_stuff(last[0], 4);
	BUILD(shutdown(last[0], SHUT_WR));
	tcp_pair(AF_INET, tuned);
	size_t of_tuned = tcp_stuff(tuned[0], 5);
	BUILD(shutdown(tuned[0], SHUT_WR));
	conform_ready();
	conform_wait();
	expect_end("shut one way", one[1], one[0], of_one, 1);
	expect_answer("the other way", one[1], one[0]);
	expect_end("shut both ways, there", both[1], both[0], of_both[0], 2);
	expect_end("shut both ways, back", both[0], both[1], of_both[1], 3);
	expect_end("shut last", last[1], last[0], of_last, 4);
	expect_end("buffers of automatic size", tuned[1], tuned[0], of_tuned, 5);
	expect_answer("buffers of automatic size, the other way", tuned[1], tuned[0]);
	/* The child has its own. */
	char number[32];
	snprintf(number, sizeof number, "back-%zu", tcp_drain("from the child", between[0], 8));
	conform_await(number);
	conform_join(process);
	conform_pass();
}
