/*
 * A job that keeps memory busy and right: ballast DIR MIB [hot].
 *
 * Fills MIB of memory with what no compressor makes smaller, says "started", rewrites pages (all the time if
 * hot, else now and then) and tells a child through a pipe how often, until DIR/go exists. Then it checks every
 * page and the child's count, and says "ballast: right".
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WORDS = PAGE / 8, TURN = 64 };

static void fill(uint64_t *page, uint64_t index, uint64_t turn)
{
	uint64_t state = (index + 1) * 0x9e3779b97f4a7c15u ^ (turn + 1) * 0xbf58476d1ce4e5b9u;
	page[0] = turn;
	for (int i = 1; i < WORDS; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		page[i] = state;
	}
}

static void fail(const char *why, uint64_t where)
{
	printf("ballast: wrong: %s at %llu\n", why, (unsigned long long)where);
	exit(1);
}

/* Counts the bytes that come; its exit status tells whether the last one was right. */
static void count(int from)
{
	uint64_t told, expected = 0;
	while (read(from, &told, sizeof told) == sizeof told)
		if (told != ++expected)
			_exit(1);
	_exit(0);
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	char go[4096];
	snprintf(go, sizeof go, "%s/go", argv[1]);
	uint64_t pages = strtoull(argv[2], NULL, 10) << 20 >> 12;
	int hot = argc > 3 && strcmp(argv[3], "hot") == 0;
	int ends[2];
	if (pipe(ends) != 0)
		return 2;
	pid_t child = fork();
	if (child < 0)
		return 2;
	if (child == 0) {
		close(ends[1]);
		count(ends[0]);
	}
	close(ends[0]);
	uint64_t *ballast = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t scratch[WORDS];
	if (ballast == MAP_FAILED)
		return 2;
	for (uint64_t i = 0; i < pages; i++)
		fill(ballast + i * WORDS, i, 0);
	printf("started\n");
	fflush(stdout);
	uint64_t told = 0, next = 0;
	for (uint64_t turn = 1; access(go, F_OK) != 0; turn++) {
		for (int i = 0; i < TURN; i++, next = (next + 1) % pages)
			fill(ballast + next * WORDS, next, turn);
		told++;
		if (write(ends[1], &told, sizeof told) != sizeof told)
			fail("the child is gone", told);
		if (!hot)
			usleep(2000);
	}
	close(ends[1]);
	int status = 0;
	if (waitpid(child, &status, 0) != child || status != 0)
		fail("the child's count", (uint64_t)status);
	for (uint64_t i = 0; i < pages; i++) {
		fill(scratch, i, ballast[i * WORDS]);
		if (memcmp(scratch, ballast + i * WORDS, PAGE) != 0)
			fail("page", i);
	}
	printf("ballast: right\n");
	return 0;
}
