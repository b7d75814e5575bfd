/*
 * Ranks in a ring that send each other messages full of a word, and look at what comes: talk WORD FILE. They go on until
 * FILE is there.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 6000, PAUSE = 2000 };

static void fill(char *message, const char *word, long turn, int rank)
{
	size_t length = strlen(word);
	for (size_t i = 0; i < BYTES; i++)
		message[i] = word[i % length];
	memcpy(message, &turn, sizeof turn);
	memcpy(message + sizeof turn, &rank, sizeof rank);
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	int rank, size, wrong = 0, all, over = 0;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	char host[256], *sent = malloc(BYTES), *got = malloc(BYTES), *expected = malloc(BYTES);
	gethostname(host, sizeof host);
	printf("rank %d of %d on %s\n", rank, size, host);
	fflush(stdout);
	int next = (rank + 1) % size, previous = (rank + size - 1) % size;
	for (long turn = 0; !over; turn++) {
		fill(sent, argv[1], turn, rank);
		fill(expected, argv[1], turn, previous);
		MPI_Sendrecv(sent, BYTES, MPI_CHAR, next, 0, got, BYTES, MPI_CHAR, previous, 0, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		wrong += memcmp(got, expected, BYTES) != 0;
		if (turn == 100 && rank == 0) {
			printf("started\n");
			fflush(stdout);
		}
		if (rank == 0)
			over = access(argv[2], F_OK) == 0;
		MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
		usleep(PAUSE);
	}
	MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("talk: %s\n", all ? "wrong" : "right");
	MPI_Finalize();
	return all != 0;
}
