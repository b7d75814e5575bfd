/*
 * Two processes that share memory: shared ROUNDS PACE
 * They count in turn in an anonymous shared mapping, waiting on a futex in it: they can't be taken apart.
 */
#include "split.h"
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

struct board {
	_Atomic uint32_t turn;
	uint64_t word;
};

static void play(struct board *board, uint32_t first, uint32_t rounds, long each)
{
	uint64_t word = 9;
	for (uint32_t turn = 0; turn < rounds * 2; turn++) {
		word = next_word(word);
		uint32_t seen;
		if (turn % 2 != first)
			continue;
		while ((seen = atomic_load(&board->turn)) != turn) {
			/* Not two on this board: the next turn is the other's. */
			if (seen > turn)
				fail("turn %u came before %u", seen, turn);
			syscall(SYS_futex, &board->turn, FUTEX_WAIT, seen, NULL, NULL, 0);
		}
		if (turn > 0 && next_word(board->word) != word)
			fail("turn %u: wrong word", turn);
		board->word = word;
		atomic_store(&board->turn, turn + 1);
		syscall(SYS_futex, &board->turn, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
		pace(each);
	}
}

int main(int argc, char **argv)
{
	split_name = "shared";
	if (argc != 3)
		fail("usage: shared ROUNDS PACE");
	uint32_t rounds = (uint32_t)number(argv[1]);
	struct board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (board == MAP_FAILED)
		fail("mmap: %s", strerror(errno));
	pid_t child = (pid_t)MUST(fork());
	if (child == 0) {
		play(board, 1, rounds, 0);
		_exit(0);
	}
	say("started");
	play(board, 0, rounds, number(argv[2]));
	join(child);
	say("right");
	return 0;
}
