/*
 * A pipeline: stream produce ROUNDS PACE | stream filter | stream consume ROUNDS
 * Every round is a block of words; the filter changes each; the consumer checks each, and says the sum.
 */
#include "split.h"
#include <inttypes.h>

enum { WORDS = 700 };

static void produce(long rounds, long each)
{
	uint64_t block[WORDS], word = 1;
	for (long round = 0; round < rounds; round++) {
		for (int i = 0; i < WORDS; i++)
			block[i] = word = next_word(word);
		write_all(STDOUT_FILENO, block, sizeof block);
		pace(each);
	}
}

static void filter(void)
{
	uint64_t word;
	char bytes[sizeof word * WORDS];
	while (read_all(STDIN_FILENO, bytes, sizeof bytes)) {
		for (size_t at = 0; at < sizeof bytes; at += sizeof word) {
			memcpy(&word, bytes + at, sizeof word);
			word = next_word(word ^ 0x5555555555555555u);
			memcpy(bytes + at, &word, sizeof word);
		}
		write_all(STDOUT_FILENO, bytes, sizeof bytes);
	}
}

static void consume(long rounds)
{
	uint64_t block[WORDS], word = 1, sum = 0;
	say("started");
	for (long round = 0; round < rounds; round++) {
		if (!read_all(STDIN_FILENO, block, sizeof block))
			fail("the pipeline ended after %ld rounds", round);
		for (int i = 0; i < WORDS; i++) {
			word = next_word(word);
			if (block[i] != next_word(word ^ 0x5555555555555555u))
				fail("round %ld: word %d is wrong", round, i);
			sum += block[i];
		}
	}
	if (read_all(STDIN_FILENO, block, sizeof block))
		fail("more came than was sent");
	printf("stream: sum %016" PRIx64 "\n", sum);
	say("right");
}

int main(int argc, char **argv)
{
	split_name = "stream";
	if (argc == 4 && !strcmp(argv[1], "produce"))
		produce(number(argv[2]), number(argv[3]));
	else if (argc == 2 && !strcmp(argv[1], "filter"))
		filter();
	else if (argc == 3 && !strcmp(argv[1], "consume"))
		consume(number(argv[2]));
	else
		fail("usage: stream produce ROUNDS PACE | filter | consume ROUNDS");
	return 0;
}
