/*
 * A blast wave in a cube of gas: what codes of hydrodynamics do, in small.
 *
 * The Euler equations by finite volumes (Rusanov's fluxes, first order) on N x N x N cells, after an explosion in one
 * corner, between walls that reflect. The cube is cut into slabs of planes, one a rank. In each step neighbours exchange
 * their outer planes without blocking, and all ranks agree on the longest time step that is stable.
 *
 * What a cell becomes depends on its neighbours and that time step alone, and the smallest of many numbers does not
 * depend on their order: the answer is the same, bit by bit, however many ranks work on it. So a single message that is
 * lost, repeated or changed makes it another one.
 *
 * blast N STEPS [FILE]
 *
 * With FILE the same blast is computed again and again, until the file is there; every time must end as the first one.
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Density, momentum along x, y and z, energy. */
enum { FIELDS = 5, DIRECTIONS = 3 };

static const double GAMMA = 1.4;
/* Of the longest step that is stable. */
static const double COURANT = 0.3;

struct cell {
	double of[FIELDS];
};

/* A rank's planes, with one more of each neighbour's on either side. */
struct slab {
	int width;
	int planes;
	int first;
	int rank, ranks;
	struct cell *now, *next;
};

static size_t area(const struct slab *slab)
{
	return (size_t)slab->width * slab->width;
}

/* Of plane -1 to `planes`. */
static struct cell *at(const struct slab *slab, struct cell *cells, int x, int y, int plane)
{
	return &cells[(plane + 1) * area(slab) + (size_t)y * slab->width + x];
}

static double pressure(const struct cell *cell)
{
	const double *of = cell->of;
	double moving = (of[1] * of[1] + of[2] * of[2] + of[3] * of[3]) / (2 * of[0]);
	return (GAMMA - 1) * (of[4] - moving);
}

/* How fast anything can travel through it along one axis. */
static double speed(const struct cell *cell, int axis)
{
	return fabs(cell->of[1 + axis] / cell->of[0]) + sqrt(GAMMA * pressure(cell) / cell->of[0]);
}

static struct cell reflected(struct cell cell, int axis)
{
	cell.of[1 + axis] = -cell.of[1 + axis];
	return cell;
}

static void physical_flux(const struct cell *cell, int axis, double flux[FIELDS])
{
	double velocity = cell->of[1 + axis] / cell->of[0];
	for (int field = 0; field < FIELDS; field++)
		flux[field] = cell->of[field] * velocity;
	flux[1 + axis] += pressure(cell);
	flux[4] += pressure(cell) * velocity;
}

/* Through the face between two cells: V. V. Rusanov, 1961. */
static void face_flux(const struct cell *low, const struct cell *high, int axis, double flux[FIELDS])
{
	double of_low[FIELDS], of_high[FIELDS];
	physical_flux(low, axis, of_low);
	physical_flux(high, axis, of_high);
	double fastest = fmax(speed(low, axis), speed(high, axis));
	for (int field = 0; field < FIELDS; field++)
		flux[field] = (of_low[field] + of_high[field] - fastest * (high->of[field] - low->of[field])) / 2;
}

static struct cell neighbour(const struct slab *slab, const int place[DIRECTIONS], int axis, int step)
{
	int there[DIRECTIONS] = {place[0], place[1], place[2]};
	there[axis] += step;
	bool is_outside = axis < 2 ? there[axis] < 0 || there[axis] >= slab->width
				   : slab->first + there[2] < 0 || slab->first + there[2] >= slab->width;
	if (is_outside)
		return reflected(*at(slab, slab->now, place[0], place[1], place[2]), axis);
	return *at(slab, slab->now, there[0], there[1], there[2]);
}

static void advance_cell(const struct slab *slab, const int place[DIRECTIONS], double ratio)
{
	const struct cell *old = at(slab, slab->now, place[0], place[1], place[2]);
	struct cell made = *old;
	for (int axis = 0; axis < DIRECTIONS; axis++) {
		struct cell low = neighbour(slab, place, axis, -1), high = neighbour(slab, place, axis, 1);
		double in[FIELDS], out[FIELDS];
		face_flux(&low, old, axis, in);
		face_flux(old, &high, axis, out);
		for (int field = 0; field < FIELDS; field++)
			made.of[field] += ratio * (in[field] - out[field]);
	}
	*at(slab, slab->next, place[0], place[1], place[2]) = made;
}

static void advance_planes(struct slab *slab, int from, int to, double ratio)
{
	for (int plane = from; plane < to; plane++)
		for (int y = 0; y < slab->width; y++)
			for (int x = 0; x < slab->width; x++)
				advance_cell(slab, (int[]){x, y, plane}, ratio);
}

/* The width of a cell is 1. */
static double stable_step(const struct slab *slab)
{
	double fastest = 0, common;
	for (size_t index = area(slab); index < (slab->planes + 1) * area(slab); index++)
		for (int axis = 0; axis < DIRECTIONS; axis++)
			fastest = fmax(fastest, speed(&slab->now[index], axis));
	double own = COURANT / fastest;
	MPI_Allreduce(&own, &common, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
	return common;
}

static void step(struct slab *slab)
{
	MPI_Request requests[4];
	int numbers = (int)area(slab) * FIELDS, waiting = 0;
	/* To the neighbour below goes the lowest plane, to the one above the highest. */
	for (int side = 0; side < 2; side++) {
		int other = slab->rank + (side ? 1 : -1);
		if (other < 0 || other >= slab->ranks)
			continue;
		double *theirs = at(slab, slab->now, 0, 0, side ? slab->planes : -1)->of;
		double *own = at(slab, slab->now, 0, 0, side ? slab->planes - 1 : 0)->of;
		MPI_Irecv(theirs, numbers, MPI_DOUBLE, other, !side, MPI_COMM_WORLD, &requests[waiting++]);
		MPI_Isend(own, numbers, MPI_DOUBLE, other, side, MPI_COMM_WORLD, &requests[waiting++]);
	}
	double ratio = stable_step(slab);
	/* What no neighbour is needed for is computed while the planes are under way. */
	if (slab->planes > 2)
		advance_planes(slab, 1, slab->planes - 1, ratio);
	MPI_Waitall(waiting, requests, MPI_STATUSES_IGNORE);
	advance_planes(slab, 0, 1, ratio);
	if (slab->planes > 1)
		advance_planes(slab, slab->planes - 1, slab->planes, ratio);
	struct cell *old = slab->now;
	slab->now = slab->next;
	slab->next = old;
}

static void ignite(struct slab *slab)
{
	for (int plane = 0; plane < slab->planes; plane++)
		for (size_t index = 0; index < area(slab); index++)
			*(at(slab, slab->now, 0, 0, plane) + index) = (struct cell){{1, 0, 0, 0, 1e-3}};
	if (slab->first == 0)
		at(slab, slab->now, 0, 0, 0)->of[4] = 1e3;
}

/* FNV-1a of all cells' bits, from plane to plane: each rank goes on from what the one before it has found. */
static uint64_t fingerprint(struct slab *slab)
{
	uint64_t found = 0xcbf29ce484222325;
	if (slab->rank > 0)
		MPI_Recv(&found, 1, MPI_UINT64_T, slab->rank - 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	const unsigned char *bytes = (const unsigned char *)at(slab, slab->now, 0, 0, 0);
	for (size_t index = 0; index < slab->planes * area(slab) * sizeof(struct cell); index++)
		found = (found ^ bytes[index]) * 0x100000001b3;
	if (slab->rank + 1 < slab->ranks)
		MPI_Send(&found, 1, MPI_UINT64_T, slab->rank + 1, 2, MPI_COMM_WORLD);
	MPI_Bcast(&found, 1, MPI_UINT64_T, slab->ranks - 1, MPI_COMM_WORLD);
	return found;
}

static uint64_t blast(struct slab *slab, int steps)
{
	ignite(slab);
	for (int number = 0; number < steps; number++)
		step(slab);
	return fingerprint(slab);
}

/* Whether rank 0 sees the file. */
static bool is_over(const struct slab *slab, const char *file)
{
	int over = file == NULL || (slab->rank == 0 && access(file, F_OK) == 0);
	MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return over;
}

static void *room(const struct slab *slab)
{
	void *cells = calloc((slab->planes + 2) * area(slab), sizeof(struct cell));
	if (cells == NULL) {
		perror("blast");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return cells;
}

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	struct slab slab = {.width = argc > 2 ? atoi(argv[1]) : 0};
	int steps = argc > 2 ? atoi(argv[2]) : 0;
	MPI_Comm_rank(MPI_COMM_WORLD, &slab.rank);
	MPI_Comm_size(MPI_COMM_WORLD, &slab.ranks);
	if (slab.width < slab.ranks || steps < 1) {
		fprintf(stderr, "usage: blast N STEPS [FILE], with at least one plane a rank\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	slab.first = slab.width * slab.rank / slab.ranks;
	slab.planes = slab.width * (slab.rank + 1) / slab.ranks - slab.first;
	slab.now = room(&slab);
	slab.next = room(&slab);

	char name[MPI_MAX_PROCESSOR_NAME];
	int length, rounds = 1;
	MPI_Get_processor_name(name, &length);
	printf("rank %d of %d on %s\n", slab.rank, slab.ranks, name);
	fflush(stdout);
	uint64_t first = blast(&slab, steps);
	bool is_equal = true;
	for (; !is_over(&slab, argc > 3 ? argv[3] : NULL); rounds++)
		is_equal &= blast(&slab, steps) == first;
	if (slab.rank == 0 && is_equal)
		printf("blast: %016" PRIx64 "\n", first);
	else if (slab.rank == 0)
		printf("blast: WRONG in one of %d rounds\n", rounds);
	MPI_Finalize();
	return is_equal ? 0 : 1;
}
