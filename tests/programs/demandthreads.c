/*
 * Threads and children that touch, move, give back and inherit memory while it is filled find all of it as it was.
 * conform: held
 */
#include "demand.inc"

#include <pthread.h>

enum { THREADS = 6, PAGES = 2048, PIECE = 64, CHILDREN = 8 };

static char *memory, *pieces[PAGES / PIECE], *given;
static pthread_barrier_t barrier;

static void look(void *number)
{
	size_t from = (size_t)number * (PAGES / CHILDREN);
	expect_pages("child", memory + from * PAGE, PAGES / CHILDREN, 1000 + from);
}

/* All touch the same pages, in other orders. */
static void *touch(void *argument)
{
	size_t number = (size_t)argument;
	pthread_barrier_wait(&barrier);
	for (size_t at = 0; at < PAGES; at++) {
		size_t page = (at * (2 * number + 1) + number * 37) % PAGES;
		expect_pages("touched", memory + page * PAGE, 1, 1000 + page);
	}
	return NULL;
}

/* As realloc(3) does of large blocks, to where the kernel finds room. */
static void *move(void *argument)
{
	size_t number = (size_t)argument;
	pthread_barrier_wait(&barrier);
	for (size_t at = number; at < PAGES / PIECE; at += 2) {
		for (int round = 2; round < 5; round++) {
			size_t before = (round - 1) * PIECE, after = round * PIECE;
			char *place = mremap(pieces[at], before * PAGE, after * PAGE, MREMAP_MAYMOVE);
			if (place == MAP_FAILED)
				conform_fail("mremap: %s", strerror(errno));
			pieces[at] = place;
			expect_pages("moved", place + (round * 7) * PAGE, 3, 5000 + at * PIECE + round * 7);
		}
		expect_pages("moved", pieces[at], PIECE, 5000 + at * PIECE);
		expect_zeros("grown", pieces[at] + PIECE * PAGE, 3 * PIECE);
		if (at % 4 == number)
			BUILD(munmap(pieces[at], 4 * PIECE * PAGE));
	}
	return NULL;
}

static void *give_back(void *unused)
{
	pthread_barrier_wait(&barrier);
	for (size_t at = 0; at < PAGES; at += 8) {
		BUILD(madvise(given + at * PAGE, 4 * PAGE, MADV_DONTNEED));
		expect_zeros("given back", given + at * PAGE, 4);
		expect_pages("not given back", given + (at + 4) * PAGE, 4, 9000 + at + 4);
	}
	return unused;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	memory = anonymous(PAGES), given = anonymous(PAGES);
	put_pages(memory, PAGES, 1000);
	put_pages(given, PAGES, 9000);
	for (size_t at = 0; at < PAGES / PIECE; at++) {
		pieces[at] = anonymous(PIECE);
		put_pages(pieces[at], PIECE, 5000 + at * PIECE);
	}
	conform_ready();
	conform_wait();

	pthread_t threads[THREADS];
	BUILD0(pthread_barrier_init(&barrier, NULL, THREADS + 1));
	for (size_t number = 0; number < THREADS; number++) {
		void *(*run)(void *) = number < 3 ? touch : number < 5 ? move : give_back;
		void *argument = (void *)(number < 3 ? number : number - 3);
		BUILD0(pthread_create(&threads[number], NULL, run, argument));
	}
	pthread_barrier_wait(&barrier);
	pid_t children[CHILDREN];
	for (size_t number = 0; number < CHILDREN; number++) {
		if (number == CHILDREN / 2)
			let_fill();
		children[number] = conform_spawn(look, (void *)number);
	}
	for (size_t number = 0; number < CHILDREN; number++)
		conform_join(children[number]);
	for (size_t number = 0; number < THREADS; number++)
		BUILD0(pthread_join(threads[number], NULL));
	expect_pages("in the end", memory, PAGES, 1000);
	for (size_t at = 0; at < PAGES; at += 8)
		expect_zeros("given back, in the end", given + at * PAGE, 4);
	conform_pass();
}
