/*
 * A pair of Unix sockets between two processes: pair stream|dgram|seqpacket ROUNDS PACE
 * Messages of growing size go both ways, several at a time; boundaries are checked where there are any. At the end
 * one shuts its direction down. Their parent waits: a process with children is no load, and goes where they go.
 */
#include "split.h"
#include <sys/socket.h>

enum { BURST = 5, LARGEST = 3000 };

static int kind;

static size_t make(unsigned char *bytes, uint64_t round, int index, bool back)
{
	uint64_t word = round * 16 + (uint64_t)index * 2 + back;
	size_t size = 1 + (size_t)(next_word(word) >> 33) % LARGEST;
	for (size_t i = 0; i < size; i++)
		bytes[i] = (unsigned char)((word = next_word(word)) >> 56);
	return size;
}

static void send_burst(int fd, uint64_t round, bool back)
{
	unsigned char bytes[LARGEST];
	for (int i = 0; i < BURST; i++) {
		size_t size = make(bytes, round, i, back);
		if (kind == SOCK_STREAM) {
			write_all(fd, bytes, size);
			continue;
		}
		if (MUST(send(fd, bytes, size, 0)) != (long)size)
			fail("a message was cut");
	}
}

static bool take_burst(int fd, uint64_t round, bool back)
{
	unsigned char expected[LARGEST], found[LARGEST + 1];
	for (int i = 0; i < BURST; i++) {
		size_t size = make(expected, round, i, back);
		if (kind == SOCK_STREAM) {
			if (!read_all(fd, found, size))
				return false;
		} else {
			ssize_t got = recv(fd, found, sizeof found, 0);
			if (got == 0 && kind == SOCK_SEQPACKET)
				return false;
			if (must(got, "recv") != (long)size)
				fail("round %lu: %zd bytes came, %zu are due", (unsigned long)round, got,
				     size);
		}
		if (memcmp(expected, found, size))
			fail("round %lu: wrong bytes", (unsigned long)round);
	}
	return true;
}

static void lead(int fd, uint64_t rounds, long rest)
{
	for (uint64_t round = 0; round < rounds; round++) {
		send_burst(fd, round, false);
		if (!take_burst(fd, round, true))
			fail("the other end is closed in round %lu", (unsigned long)round);
		pace(rest);
	}
	MUST(shutdown(fd, SHUT_WR));
}

static void follow(int fd, uint64_t rounds)
{
	uint64_t round = 0;
	while ((kind != SOCK_DGRAM || round < rounds) && take_burst(fd, round, false))
		send_burst(fd, round++, true);
	if (round != rounds)
		fail("ended after %lu rounds", (unsigned long)round);
}

int main(int argc, char **argv)
{
	split_name = "pair";
	const char *names[] = { "stream", "dgram", "seqpacket" };
	int kinds[] = { SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET }, fds[2];
	for (int i = 0; argc == 4 && i < 3; i++)
		if (!strcmp(argv[1], names[i]))
			kind = kinds[i];
	if (!kind)
		fail("usage: pair stream|dgram|seqpacket ROUNDS PACE");
	uint64_t rounds = (uint64_t)number(argv[2]);
	MUST(socketpair(AF_UNIX, kind, 0, fds));
	pid_t children[2];
	for (int i = 0; i < 2; i++) {
		children[i] = (pid_t)MUST(fork());
		if (children[i] == 0) {
			close(fds[!i]);
			if (i == 0)
				lead(fds[0], rounds, number(argv[3]));
			else
				follow(fds[1], rounds);
			_exit(0);
		}
	}
	close(fds[0]);
	close(fds[1]);
	say("started");
	for (int i = 0; i < 2; i++)
		join(children[i]);
	say("right");
	return 0;
}
