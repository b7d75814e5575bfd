/*
 * N-Queens over plain TCP: queens RANK RANKS HOST PORT QUEENS [PACE]
 * The placements of the first three queens are dealt to the ranks once, before any is counted. Rank 0 listens at HOST:PORT, counts
 * its own part, and takes every other rank's count of each placement as it comes: each is there once, in its order.
 */
#include "split.h"
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { MOST_RANKS = 64, MOST_QUEENS = 20, PATIENCE_MS = 60000 };

struct word {
	uint32_t rank, placement;
	uint64_t count;
};

static int queens, ranks, rank;
static uint32_t placement, all;

static uint64_t count(uint32_t columns, uint32_t left, uint32_t right)
{
	if (columns == all)
		return 1;
	uint64_t found = 0;
	for (uint32_t free = all & ~(columns | left | right); free; free &= free - 1) {
		uint32_t queen = free & -free;
		found += count(columns | queen, (left | queen) << 1, (right | queen) >> 1);
	}
	return found;
}

/* The solutions of this rank, placement by placement, and the other ranks' as they say them. */
static uint64_t search(int row, uint32_t columns, uint32_t left, uint32_t right, const int *peers, long rest)
{
	uint64_t found = 0;
	if (row < 3) {
		for (uint32_t free = all & ~(columns | left | right); free; free &= free - 1) {
			uint32_t queen = free & -free;
			found += search(row + 1, columns | queen, (left | queen) << 1, (right | queen) >> 1, peers, rest);
		}
		return found;
	}
	int turn = (int)(placement % (uint32_t)ranks);
	struct word word = { (uint32_t)turn, placement, 0 };
	placement++;
	if (turn == rank) {
		word.count = count(columns, left, right);
		pace(rest);
		if (rank > 0)
			write_all(peers[0], &word, sizeof word);
		return word.count;
	}
	if (rank > 0)
		return 0;
	struct word told;
	if (!read_all(peers[turn], &told, sizeof told))
		fail("rank %d is gone", turn);
	if (told.rank != word.rank || told.placement != word.placement)
		fail("rank %d says placement %u, not %u", turn, told.placement, word.placement);
	return told.count;
}

static void listen_for_all(int port, int *peers)
{
	int on = 1, server = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
	MUST(setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	MUST(bind(server, (struct sockaddr *)&address, sizeof address));
	MUST(listen(server, MOST_RANKS));
	for (int missing = ranks - 1; missing > 0; missing--) {
		int fd = (int)MUST(accept(server, NULL, NULL));
		uint32_t who;
		if (!read_all(fd, &who, sizeof who) || who == 0 || who >= (uint32_t)ranks || peers[who])
			fail("a stranger has connected");
		peers[who] = fd;
	}
}

static int connected(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	int error = getaddrinfo(host, port, &hints, &found);
	if (error)
		fail("no address of %s: %s", host, gai_strerror(error));
	for (int waited = 0; waited < PATIENCE_MS; waited += 50) {
		int fd = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
		if (connect(fd, found->ai_addr, found->ai_addrlen) == 0) {
			uint32_t who = (uint32_t)rank;
			write_all(fd, &who, sizeof who);
			freeaddrinfo(found);
			return fd;
		}
		close(fd);
		pace(50000);
	}
	fail("%s:%s never answered", host, port);
}

int main(int argc, char **argv)
{
	split_name = "queens";
	if (argc < 6)
		fail("usage: queens RANK RANKS HOST PORT QUEENS [PACE]");
	rank = (int)number(argv[1]), ranks = (int)number(argv[2]), queens = (int)number(argv[5]);
	if (ranks > MOST_RANKS || rank >= ranks || queens < 4 || queens > MOST_QUEENS)
		fail("at most %d ranks and %d queens", MOST_RANKS, MOST_QUEENS);
	all = (1u << queens) - 1;
	int peers[MOST_RANKS] = { 0 };
	if (rank == 0)
		listen_for_all((int)number(argv[4]), peers);
	else
		peers[0] = connected(argv[3], argv[4]);
	if (rank == 0)
		say("started");
	uint64_t found = search(0, 0, 0, 0, peers, argc > 6 ? number(argv[6]) : 0);
	if (rank == 0) {
		printf("queens: %d queens have %llu solutions\n", queens, (unsigned long long)found);
		say("right");
	}
	return 0;
}
