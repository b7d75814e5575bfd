/*
 * Ranks that start others: spawn FILE COUNT HOSTS. Once FILE is there they start COUNT ranks more of this program by
 * MPI_Comm_spawn, on the hosts that the file HOSTS names, in that order. Without such an order Open MPI 4.1's mpirun begins
 * with the node where it has last placed a rank, its daemons with the first one, and the new ranks' numbers are wrong. Then each of the old ranks exchanges a message with each of the new ones, and the new ones with each
 * other, so that all connections between them are made then: those of one pair in two are asked for by the new one.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WORDS = 5000 };

static int word(int from, int to, int place)
{
	return from * 1000003 + to * 10007 + place;
}

/* All with all, in the order of ranks; how many words were wrong. */
static int exchange(MPI_Comm all)
{
	static int sent[WORDS], got[WORDS];
	int rank, size, wrong = 0;
	MPI_Comm_rank(all, &rank);
	MPI_Comm_size(all, &size);
	for (int step = 1; step < size; step++) {
		int to = (rank + step) % size, from = (rank + size - step) % size;
		for (int i = 0; i < WORDS; i++)
			sent[i] = word(rank, to, i);
		MPI_Sendrecv(sent, WORDS, MPI_INT, to, step, got, WORDS, MPI_INT, from, step, all, MPI_STATUS_IGNORE);
		for (int i = 0; i < WORDS; i++)
			wrong += got[i] != word(from, rank, i);
	}
	return wrong;
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	MPI_Comm parent, between, all;
	MPI_Comm_get_parent(&parent);
	int rank, sum, old = parent == MPI_COMM_NULL;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	char host[64] = "";
	gethostname(host, sizeof host - 1);
	if (old) {
		if (argc != 4) {
			fprintf(stderr, "usage: spawn FILE COUNT HOSTS\n");
			MPI_Abort(MPI_COMM_WORLD, 2);
		}
		if (rank == 0) {
			printf("spawn: started\n");
			fflush(stdout);
		}
		while (access(argv[1], F_OK) < 0)
			usleep(50000);
		MPI_Info where;
		MPI_Info_create(&where);
		MPI_Info_set(where, "map_by", "seq");
		MPI_Info_set(where, "hostfile", argv[3]);
		MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, atoi(argv[2]), where, 0, MPI_COMM_WORLD, &between,
			       MPI_ERRCODES_IGNORE);
		MPI_Info_free(&where);
	} else {
		between = parent;
		printf("spawn: new rank %d on %s\n", rank, host);
		fflush(stdout);
	}
	MPI_Intercomm_merge(between, !old, &all);
	int wrong = exchange(all);
	MPI_Allreduce(&wrong, &sum, 1, MPI_INT, MPI_SUM, all);
	if (old && rank == 0)
		printf("spawn: %s\n", sum ? "wrong" : "right");
	MPI_Comm_free(&all);
	MPI_Comm_disconnect(&between);
	MPI_Finalize();
	return sum != 0;
}
