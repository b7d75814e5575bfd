/* TCP connections whose receive window is full, with more waiting at the sender; in both directions at once. */
#include "tcp.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int small[2], tuned[2];
	tcp_small_pair(AF_INET, small);
	tcp_pair(AF_INET, tuned);
	size_t there = tcp_stuff(small[0], 1), back = tcp_stuff(small[1], 2), big = tcp_stuff(tuned[0], 3);
	conform_write_all(tuned[1], "against the stream", 18);
	conform_ready();
	conform_wait();
	tcp_expect_stream("full window", small[1], there, 1);
	conform_expect_nothing("full window", small[1]);
	tcp_expect_stream("full window the other way", small[0], back, 2);
	conform_expect_nothing("full window the other way", small[0]);
	conform_expect_bytes("bytes against the stream", tuned[0], "against the stream");
	tcp_expect_stream("full window of automatic size", tuned[1], big, 3);
	conform_expect_nothing("full window of automatic size", tuned[1]);
	conform_write_all(small[0], "on", 2);
	conform_expect_bytes("bytes sent afterwards", small[1], "on");
	close(tuned[0]);
	conform_expect_eof("closed", tuned[1]);
	conform_pass();
}
