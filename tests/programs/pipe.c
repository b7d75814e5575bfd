/* Pipes: bytes waiting, capacity, flags, ends in one process and in two, blocked readers and writers, a full pipe. */
#include "conform.h"

enum { CAPACITY = 1 << 18 };
static int to_child[2], from_child[2], full[2];
static size_t filled;

static void child(void *unused)
{
	(void)unused;
	char byte;
	close(to_child[1]);
	close(from_child[0]);
	close(full[0]);
	close(full[1]);
	conform_mark("born");
	/* Blocks until the parent writes, which is after the checkpoints. */
	EXPECT("blocked read", read(to_child[0], &byte, 1), 1);
	EXPECT("byte that came", byte, 'x');
	conform_write_all(from_child[1], "second", 6);
}

static void blocked_writer(void *unused)
{
	(void)unused;
	close(full[0]);
	conform_mark("blocked");
	conform_write_all(full[1], "last", 4);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int own[2], direct[2];
	char block[4096];
	BUILD(pipe(to_child));
	BUILD(pipe(from_child));
	BUILD(pipe2(own, O_NONBLOCK | O_CLOEXEC));
	BUILD(pipe(full));
	BUILD(pipe2(direct, O_DIRECT));
	BUILD(fcntl(own[1], F_SETPIPE_SZ, CAPACITY));
	conform_write_all(own[1], "pending bytes", 13);
	conform_write_all(from_child[1], "first ", 6);
	conform_write_all(direct[1], "packet one", 10);
	conform_write_all(direct[1], "two", 3);
	/* Fill it to the last byte. */
	BUILD(fcntl(full[1], F_SETFL, O_NONBLOCK));
	for (ssize_t done; conform_fill(block, sizeof block, (unsigned)filled),
			   (done = write(full[1], block, sizeof block)) > 0;)
		filled += (size_t)done;
	BUILD(fcntl(full[1], F_SETFL, 0));
	pid_t first = conform_spawn(child, NULL), second = conform_spawn(blocked_writer, NULL);
	close(to_child[0]);
	close(from_child[1]);
	close(full[1]);
	conform_await("born");
	conform_await("blocked");
	conform_sleep_ms(10);
	conform_ready();
	conform_wait();
	conform_expect_bytes("bytes in a pipe", own[0], "pending bytes");
	EXPECT_ERROR("empty pipe", read(own[0], block, 1), EAGAIN);
	EXPECT("capacity", fcntl(own[0], F_GETPIPE_SZ), CAPACITY);
	EXPECT("close-on-exec", fcntl(own[0], F_GETFD), FD_CLOEXEC);
	EXPECT("first packet", read(direct[0], block, sizeof block), 10);
	EXPECT("second packet", read(direct[0], block, sizeof block), 3);
	for (size_t at = 0; at < filled; at += sizeof block) {
		conform_read_all(full[0], block, sizeof block);
		conform_verify("full pipe", block, sizeof block, (unsigned)at);
	}
	conform_expect_bytes("what the blocked writer had", full[0], "last");
	conform_expect_eof("full pipe at its end", full[0]);
	conform_write_all(to_child[1], "x", 1);
	conform_expect_bytes("child's bytes", from_child[0], "first second");
	conform_expect_eof("child's pipe", from_child[0]);
	conform_join(first);
	conform_join(second);
	conform_pass();
}
