/* TCP connections shut for one direction, with bytes still to be read before the end, or none. */
#include "tcp.h"

static void expect_end(const char *what, int shut, int other)
{
	conform_expect_eof(what, other);
	conform_write_all(other, "other way", 9);
	conform_expect_bytes(what, shut, "other way");
	EXPECT_ERROR(what, write(shut, "x", 1), EPIPE);
	close(other);
	conform_expect_eof(what, shut);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int unread[2], read_out[2], both[2];
	signal(SIGPIPE, SIG_IGN);
	tcp_pair(AF_INET, unread);
	tcp_pair(AF_INET, read_out);
	tcp_pair(AF_INET, both);
	conform_write_all(unread[0], "rest", 4);
	BUILD(shutdown(unread[0], SHUT_WR));
	conform_write_all(read_out[1], "early", 5);
	BUILD(shutdown(read_out[0], SHUT_WR));
	conform_expect_eof("before", read_out[1]);
	conform_write_all(both[0], "one", 3);
	conform_write_all(both[1], "two", 3);
	BUILD(shutdown(both[0], SHUT_WR));
	BUILD(shutdown(both[1], SHUT_WR));
	conform_ready();
	conform_wait();
	conform_expect_bytes("bytes before the end", unread[1], "rest");
	expect_end("shut, unread", unread[0], unread[1]);
	conform_expect_bytes("bytes against the shut direction", read_out[0], "early");
	expect_end("shut, read", read_out[0], read_out[1]);
	conform_expect_bytes("shut both ways, one", both[1], "one");
	conform_expect_eof("shut both ways, one", both[1]);
	conform_expect_bytes("shut both ways, two", both[0], "two");
	conform_expect_eof("shut both ways, two", both[0]);
	conform_pass();
}
