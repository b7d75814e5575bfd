/*
 * Ranks that have nothing to do with each other until FILE is there: exchange FILE. Then each pair of them exchanges
 * a message, so that all connections between them are made then.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { WORDS = 20000 };

static int word(int from, int to, int place)
{
	return from * 1000003 + to * 10007 + place;
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	int rank, size;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (rank == 0) {
		printf("exchange: started\n");
		fflush(stdout);
	}
	while (access(argv[1], F_OK) < 0)
		usleep(50000);
	int *sent = malloc(WORDS * sizeof *sent), *got = malloc(WORDS * sizeof *got), wrong = 0, all;
	for (int step = 1; step < size; step++) {
		int to = (rank + step) % size, from = (rank + size - step) % size;
		for (int i = 0; i < WORDS; i++)
			sent[i] = word(rank, to, i);
		MPI_Sendrecv(sent, WORDS, MPI_INT, to, step, got, WORDS, MPI_INT, from, step, MPI_COMM_WORLD,
			     MPI_STATUS_IGNORE);
		for (int i = 0; i < WORDS; i++)
			wrong += got[i] != word(from, rank, i);
	}
	MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("exchange: %s\n", all ? "wrong" : "right");
	MPI_Finalize();
	return all != 0;
}
