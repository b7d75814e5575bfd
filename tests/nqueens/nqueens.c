/*
 * N-Queens with bit masks, spread over MPI ranks.
 *
 * The placements of the first rows ("prefixes") are dealt to the ranks once, before any is counted, and the
 * counts are reduced at the end: an answer that misses or repeats a single prefix is wrong. That makes the
 * program a sharp test of a checkpoint: nothing is recomputed, asked for again, or repaired.
 *
 * nqueens N [--ballast MIB] [--rounds R] [--least SECONDS] [--chat EVERY] [--weights A,B,...] [--progress]
 *         [--until FILE] [--settle MS] [--gate FILE] [--meet ROUNDS] [--rest MS] [--pulse FILE]
 *
 * --rest: who has sent and taken a message of --chat rests so long. --pulse: how many messages rank 0 has taken is
 * the file's time of modification, in seconds, which needs no open file. --gate: nobody begins before the file is
 * there. --meet: the ranks meet after so many rounds only, and the dealing goes on from round to round: where it is a
 * multiple of the ranks' number, all have the very same work in between.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	/* Boards wider than this overflow the 64-bit count or nobody's patience lasts. */
	MOST_QUEENS = 27,
	/* Rows placed by a prefix: 15 queens give about 2,000 prefixes, enough for 100 ranks. */
	PREFIX_ROWS = 3,
	MOST_WEIGHTS = 256,
	MOST_BALLAST_MIB = 1 << 20,
	CHAT_TAG = 17,
	REPORTS_A_ROUND = 20,
};

/* A partly filled board: columns taken, and the two diagonals as they cross the next row. */
struct prefix {
	uint32_t columns, left, right;
};

struct options {
	int queens;
	long ballast_mib;
	long rounds;
	double least_seconds;
	long chat_every;
	long weights[MOST_WEIGHTS];
	int weight_count;
	bool progress;
	const char *until;
	const char *gate;
	const char *pulse;
	long meet;
	long settle_ms;
	long rest_ms;
};

static int rank, ranks;

static void die(const char *message)
{
	fprintf(stderr, "nqueens: rank %d: %s\n", rank, message);
	fflush(stderr);
	MPI_Abort(MPI_COMM_WORLD, 1);
	exit(1);
}

static uint64_t count_completions(uint32_t all, uint32_t columns, uint32_t left, uint32_t right)
{
	if (columns == all)
		return 1;
	uint64_t found = 0;
	uint32_t free_columns = all & ~(columns | left | right);
	while (free_columns) {
		uint32_t queen = free_columns & -free_columns;
		free_columns ^= queen;
		found += count_completions(all, columns | queen, (left | queen) << 1,
					   (right | queen) >> 1);
	}
	return found;
}

static size_t list_prefixes(uint32_t all, int rows, struct prefix board, struct prefix *list,
			    size_t length)
{
	if (rows == 0) {
		if (list)
			list[length] = board;
		return length + 1;
	}
	uint32_t free_columns = all & ~(board.columns | board.left | board.right);
	while (free_columns) {
		uint32_t queen = free_columns & -free_columns;
		free_columns ^= queen;
		struct prefix next = {
			.columns = board.columns | queen,
			.left = (board.left | queen) << 1,
			.right = (board.right | queen) >> 1,
		};
		length = list_prefixes(all, rows - 1, next, list, length);
	}
	return length;
}

/* splitmix64: every word of the ballast depends on the rank and on its own position. */
static uint64_t ballast_word(uint64_t position)
{
	uint64_t x = position + ((uint64_t)(rank + 1) << 48);
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static uint64_t *make_ballast(size_t words)
{
	uint64_t *ballast = malloc(words * sizeof *ballast);
	if (!ballast)
		die("no memory for the ballast");
	for (size_t i = 0; i < words; i++)
		ballast[i] = ballast_word(i);
	return ballast;
}

static void verify_ballast(const uint64_t *ballast, size_t words)
{
	for (size_t i = 0; i < words; i++) {
		if (ballast[i] == ballast_word(i))
			continue;
		char message[128];
		snprintf(message, sizeof message,
			 "ballast is wrong at byte %zu: expected %016" PRIx64 ", found %016" PRIx64,
			 i * sizeof *ballast, ballast_word(i), ballast[i]);
		die(message);
	}
}

/*
 * Sends a number to the next rank and takes one from the previous. `turn` is the same everywhere, so that a
 * message that was lost, repeated or reordered is noticed at once.
 */
static void chat(uint64_t turn)
{
	int next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
	uint64_t sent[2] = { (uint64_t)rank, turn }, taken[2] = { 0, 0 };
	MPI_Sendrecv(sent, 2, MPI_UINT64_T, next, CHAT_TAG, taken, 2, MPI_UINT64_T, previous,
		     CHAT_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	if (taken[0] != (uint64_t)previous || taken[1] != turn)
		die("a neighbour's message is not the one that was due");
}

static void show_pulse(const char *file, uint64_t turn)
{
	struct timespec time = { .tv_sec = (time_t)turn };
	if (utimensat(AT_FDCWD, file, (struct timespec[]){ time, time }, 0) != 0)
		die("the file of the pulse cannot be touched");
}

/* The rank a prefix belongs to: round robin, a rank of weight w taking w prefixes a turn. */
static int owner(size_t prefix, const struct options *options)
{
	if (options->weight_count == 0)
		return (int)(prefix % (size_t)ranks);
	long turn = 0;
	for (int r = 0; r < ranks; r++)
		turn += options->weights[r % options->weight_count];
	long place = (long)(prefix % (size_t)turn);
	for (int r = 0; r < ranks; r++) {
		place -= options->weights[r % options->weight_count];
		if (place < 0)
			return r;
	}
	return 0;
}

/* This rank's part of a round. */
static uint64_t solve(const struct options *options, const struct prefix *prefixes, size_t length,
		      long round, uint64_t *turn)
{
	uint32_t all = (uint32_t)((1ull << options->queens) - 1);
	size_t report_every = length / REPORTS_A_ROUND + 1;
	size_t first = options->meet ? (size_t)round : 0;
	uint64_t mine = 0;
	for (size_t i = 0; i < length; i++) {
		if (owner(first + i, options) == rank)
			mine += count_completions(all, prefixes[i].columns, prefixes[i].left,
						  prefixes[i].right);
		if (options->chat_every && (long)(i % (size_t)options->chat_every) == 0) {
			chat((*turn)++);
			if (options->pulse && rank == 0)
				show_pulse(options->pulse, *turn);
			if (options->rest_ms)
				usleep((useconds_t)options->rest_ms * 1000);
		}
		if (options->progress && rank == 0 && i % report_every == 0) {
			printf("progress: %zu of %zu prefixes, round %ld\n", i, length, round);
			fflush(stdout);
		}
	}
	return mine;
}

static void usage(void)
{
	if (rank == 0)
		fprintf(stderr, "usage: nqueens N [--ballast MIB] [--rounds R] [--least SECONDS] "
				"[--chat EVERY] [--weights A,B,...] [--progress] "
				"[--until FILE] [--settle MS] [--gate FILE] [--meet ROUNDS] "
				"[--rest MS] [--pulse FILE]\n");
	MPI_Finalize();
	exit(2);
}

static long number(const char *text, long least, long most)
{
	char *end;
	long value = strtol(text, &end, 10);
	if (end == text || *end || value < least || value > most)
		usage();
	return value;
}

static void parse_weights(char *text, struct options *options)
{
	for (char *word = strtok(text, ","); word; word = strtok(NULL, ",")) {
		if (options->weight_count == MOST_WEIGHTS)
			usage();
		options->weights[options->weight_count++] = number(word, 1, 1000);
	}
}

static struct options parse(int argc, char **argv)
{
	static const struct option names[] = {
		{ "ballast", required_argument, NULL, 'b' },
		{ "rounds", required_argument, NULL, 'r' },
		{ "least", required_argument, NULL, 'l' },
		{ "chat", required_argument, NULL, 'c' },
		{ "weights", required_argument, NULL, 'w' },
		{ "progress", no_argument, NULL, 'p' },
		{ "until", required_argument, NULL, 'u' },
		{ "gate", required_argument, NULL, 'g' },
		{ "meet", required_argument, NULL, 'm' },
		{ "settle", required_argument, NULL, 's' },
		{ "rest", required_argument, NULL, 'R' },
		{ "pulse", required_argument, NULL, 'P' },
		{ NULL, 0, NULL, 0 },
	};
	struct options options = { .rounds = 1 };
	opterr = 0;
	for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
		switch (option) {
		case 'b': options.ballast_mib = number(optarg, 0, MOST_BALLAST_MIB); break;
		case 'r': options.rounds = number(optarg, 1, 1000000); break;
		case 'l': options.least_seconds = (double)number(optarg, 0, 1000000); break;
		case 'c': options.chat_every = number(optarg, 1, 1000000); break;
		case 'w': parse_weights(optarg, &options); break;
		case 'p': options.progress = true; break;
		case 'u': options.until = optarg; break;
		case 'g': options.gate = optarg; break;
		case 'm': options.meet = number(optarg, 1, 1000000); break;
		case 'R': options.rest_ms = number(optarg, 0, 60000); break;
		case 'P': options.pulse = optarg; break;
		case 's': options.settle_ms = number(optarg, 0, 60000); break;
		default: usage();
		}
	}
	if (optind != argc - 1)
		usage();
	options.queens = (int)number(argv[optind], 1, MOST_QUEENS);
	return options;
}

static void introduce(void)
{
	char host[MPI_MAX_PROCESSOR_NAME + 1];
	memset(host, 0, sizeof host);
	if (gethostname(host, sizeof host - 1) != 0)
		strcpy(host, "?");
	char *hosts = rank == 0 ? malloc((size_t)ranks * sizeof host) : NULL;
	MPI_Gather(host, sizeof host, MPI_CHAR, hosts, sizeof host, MPI_CHAR, 0, MPI_COMM_WORLD);
	if (rank != 0)
		return;
	for (int r = 0; r < ranks; r++)
		printf("rank %d of %d on %s\n", r, ranks, hosts + (size_t)r * sizeof host);
	fflush(stdout);
	free(hosts);
}

/* All ranks stand here until the file is there. */
static void wait_at(const char *gate)
{
	if (rank == 0) {
		printf("at the gate\n");
		fflush(stdout);
		while (access(gate, F_OK) != 0)
			usleep(20000);
	}
	MPI_Barrier(MPI_COMM_WORLD);
}

/* The rounds from `first` until the ranks meet; the count of one of them. */
static uint64_t solve_together(const struct options *options, const struct prefix *prefixes,
			       size_t length, long first, uint64_t *turn)
{
	long rounds = options->meet ? options->meet : 1;
	uint64_t mine = 0, total = 0;
	for (long round = first; round < first + rounds; round++)
		mine += solve(options, prefixes, length, round, turn);
	MPI_Allreduce(&mine, &total, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
	if (total % (uint64_t)rounds != 0)
		die("the count of some rounds is no multiple of their number");
	return total / (uint64_t)rounds;
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	struct options options = parse(argc, argv);
	introduce();

	size_t words = (size_t)options.ballast_mib * (1 << 20) / sizeof(uint64_t);
	uint64_t *ballast = words ? make_ballast(words) : NULL;

	uint32_t all = (uint32_t)((1ull << options.queens) - 1);
	int rows = options.queens < PREFIX_ROWS ? options.queens : PREFIX_ROWS;
	struct prefix empty = { 0, 0, 0 };
	size_t length = list_prefixes(all, rows, empty, NULL, 0);
	struct prefix *prefixes = malloc((length + 1) * sizeof *prefixes);
	if (!prefixes)
		die("no memory for the prefixes");
	list_prefixes(all, rows, empty, prefixes, 0);

	if (options.gate)
		wait_at(options.gate);
	double start = MPI_Wtime();
	uint64_t count = 0, turn = 0;
	long round = 0;
	int again = 1;
	while (again) {
		uint64_t found = solve_together(&options, prefixes, length, round, &turn);
		if (round > 0 && found != count)
			die("two rounds gave different counts");
		count = found;
		round += options.meet ? options.meet : 1;
		/* One rank's clock decides, or ranks would disagree on the number of rounds. */
		again = round < options.rounds || MPI_Wtime() - start < options.least_seconds ||
			(options.until && access(options.until, F_OK) != 0);
		MPI_Bcast(&again, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
	if (ballast)
		verify_ballast(ballast, words);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0) {
		printf("N=%d: %" PRIu64 " solutions\n", options.queens, count);
		printf("%ld rounds, %.2f s\n", round, MPI_Wtime() - start);
		fflush(stdout);
	}
	free(prefixes);
	free(ballast);
	/*
	 * In MPICH before 4.2 on UCX 1.12 and later, a rank in MPI_Finalize flushes its TCP connections, then waits for
	 * the process manager and answers no more. Who answers its flush from within another call of MPI, and
	 * flushes later, waits for ever. So all rest outside of MPI until everybody has left the barrier.
	 */
	usleep((useconds_t)options.settle_ms * 1000);
	MPI_Finalize();
	return 0;
}
