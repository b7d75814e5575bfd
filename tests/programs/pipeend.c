/* Pipes with a dead end: the end of file after the last byte, EPIPE, and an end that lives in a child alone. */
#include "conform.h"
#include <poll.h>

static int child_reads[2], child_writes[2];

static void child(void *unused)
{
	(void)unused;
	close(child_reads[1]);
	close(child_writes[0]);
	conform_mark("born");
	conform_wait();
	conform_expect_eof("pipe whose writer is closed in both", child_reads[0]);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int no_writer[2], no_reader[2];
	BUILD(pipe(no_writer));
	BUILD(pipe(no_reader));
	BUILD(pipe(child_reads));
	BUILD(pipe(child_writes));
	conform_write_all(no_writer[1], "rest", 4);
	close(no_writer[1]);
	close(no_reader[0]);
	signal(SIGPIPE, SIG_IGN);
	pid_t process = conform_spawn(child, NULL);
	close(child_reads[0]);
	close(child_reads[1]);
	close(child_writes[1]);
	conform_await("born");
	conform_ready();
	conform_wait();
	conform_expect_bytes("rest of a pipe without writer", no_writer[0], "rest");
	conform_expect_eof("pipe without writer", no_writer[0]);
	EXPECT_ERROR("pipe without reader", write(no_reader[1], "x", 1), EPIPE);
	struct pollfd entry = { .fd = no_reader[1], .events = POLLOUT };
	BUILD(poll(&entry, 1, 0));
	EXPECT("poll of a pipe without reader", entry.revents & POLLERR, POLLERR);
	conform_expect_eof("pipe whose writer has ended", child_writes[0]);
	conform_join(process);
	conform_pass();
}
