/* Numbered words flow through a pipe, a Unix pair and a TCP connection between processes while checkpoints are taken. */
#include "tcp.h"

/* A reader rests for a millisecond after so many words: the streams stay full, and the processors free. Writers and
 * readers that wake each other at full speed make some kernels (6.18.44) starve every other session for seconds, ckptd
 * and this suite among them: with autogroup each session is a group, and reweight_entity() in kernel/sched/fair.c moved
 * the running group ahead of the others at each change of its load (repaired in 6.18.45). */
enum { STREAMS = 3, WORDS = 512, REST_AFTER = 4096 };
static int streams[STREAMS][2];

/* Numbers from 0 on, without a hole, until the parent says go; then the end of file. */
static void producer(void *argument)
{
	int which = *(int *)argument;
	uint64_t words[WORDS], next = 0;
	for (int i = 0; i < STREAMS; i++) {
		close(streams[i][0]);
		if (i != which)
			close(streams[i][1]);
	}
	for (int turn = 0; turn % 16 != 0 || !conform_gone(); turn++) {
		for (int i = 0; i < WORDS; i++)
			words[i] = next++;
		conform_write_all(streams[which][1], words, sizeof words);
	}
}

static void consumer(void *argument)
{
	int which = *(int *)argument;
	uint64_t word[64], next = 0, rest_at = REST_AFTER;
	size_t held = 0;
	for (int i = 0; i < STREAMS; i++) {
		close(streams[i][1]);
		if (i != which)
			close(streams[i][0]);
	}
	for (;;) {
		ssize_t got = read(streams[which][0], (char *)word + held, sizeof word - held);
		if (got < 0)
			conform_fail("stream %d: read: %s", which, strerror(errno));
		if (got == 0)
			break;
		held += (size_t)got;
		for (size_t i = 0; i < held / 8; i++)
			if (word[i] != next++)
				conform_fail("stream %d: expected word %llu, found %llu", which,
					     (unsigned long long)next - 1, (unsigned long long)word[i]);
		memmove(word, (char *)word + held / 8 * 8, held % 8);
		held %= 8;
		if (next >= rest_at) {
			rest_at = next + REST_AFTER;
			conform_sleep_ms(1);
		}
	}
	EXPECT("bytes of a broken word", held, 0);
	EXPECT("words came", next > 0 && next % WORDS == 0, 1);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t children[2 * STREAMS];
	BUILD(pipe(streams[0]));
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, streams[1]));
	tcp_pair(AF_INET, streams[2]);
	for (int i = 0; i < STREAMS; i++) {
		children[2 * i] = conform_spawn(producer, &i);
		children[2 * i + 1] = conform_spawn(consumer, &i);
	}
	for (int i = 0; i < STREAMS; i++) {
		close(streams[i][0]);
		close(streams[i][1]);
	}
	conform_sleep_ms(30);
	conform_ready();
	conform_wait();
	for (int i = 0; i < 2 * STREAMS; i++)
		conform_join(children[i]);
	conform_pass();
}
