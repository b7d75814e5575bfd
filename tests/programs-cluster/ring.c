/*
 * A ring of processes over TCP, one a node: ring INDEX PORT ROUNDS PACE HOST...
 * Process INDEX listens at PORT + INDEX and connects to the next. Process 0 sends a message around; each process
 * checks that it is the one that is due, and changes it.
 */
#include "split.h"
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

enum { WORDS = 1000, PATIENCE_MS = 20000 };

static int listener(int port)
{
	int fd = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
	int on = 1;
	MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	MUST(bind(fd, (struct sockaddr *)&address, sizeof address));
	MUST(listen(fd, 4));
	return fd;
}

static int connected(const char *host, int port)
{
	char service[16];
	snprintf(service, sizeof service, "%d", port);
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	int error = getaddrinfo(host, service, &hints, &found);
	if (error)
		fail("no address of %s: %s", host, gai_strerror(error));
	for (int waited = 0; waited < PATIENCE_MS; waited += 20) {
		int fd = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
		if (connect(fd, found->ai_addr, found->ai_addrlen) == 0) {
			int on = 1;
			MUST(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
			freeaddrinfo(found);
			return fd;
		}
		close(fd);
		pace(20000);
	}
	fail("%s:%d never answered", host, port);
}

static void make(uint64_t *message, uint64_t round, int index)
{
	uint64_t word = round * 1000 + (uint64_t)index;
	for (int i = 0; i < WORDS; i++)
		message[i] = word = next_word(word);
}

static void take(int fd, uint64_t round, int from)
{
	uint64_t found[WORDS], expected[WORDS];
	if (!read_all(fd, found, sizeof found))
		fail("the ring is broken in round %lu", (unsigned long)round);
	make(expected, round, from);
	if (memcmp(found, expected, sizeof found))
		fail("round %lu: not the message that is due", (unsigned long)round);
}

int main(int argc, char **argv)
{
	split_name = "ring";
	if (argc < 7)
		fail("usage: ring INDEX PORT ROUNDS PACE HOST HOST...");
	int index = (int)number(argv[1]), port = (int)number(argv[2]), count = argc - 5;
	uint64_t rounds = (uint64_t)number(argv[3]);
	int next = (index + 1) % count, previous = (index + count - 1) % count;
	int server = listener(port + index);
	int out = connected(argv[5 + next], port + next);
	int in = (int)MUST(accept(server, NULL, NULL));
	uint64_t message[WORDS];
	if (index == 0)
		say("started");
	for (uint64_t round = 0; round < rounds; round++) {
		if (index > 0)
			take(in, round, previous);
		make(message, round, index);
		write_all(out, message, sizeof message);
		if (index == 0) {
			take(in, round, previous);
			pace(number(argv[4]));
		}
	}
	MUST(shutdown(out, SHUT_WR));
	if (read_all(in, message, sizeof message))
		fail("more came than was sent");
	say("right");
	return 0;
}
