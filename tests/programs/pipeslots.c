/*
 * A pipe is full when all of its places are taken, however few bytes are in each: single bytes that splice(2) has moved,
 * pieces of memory (vmsplice), packets (O_DIRECT). As many places are free as before, and pieces that don't take more
 * bytes still don't.
 */
#include "conform.h"
#include <poll.h>
#include <sys/uio.h>

enum { PLACES = 16, FREE = 3, MOST = 64 };

/* How many more single buffers a pipe takes. */
static int free_places(int end)
{
	int source[2], count = 0;
	BUILD(pipe2(source, O_NONBLOCK));
	for (; count < MOST; count++) {
		BUILD(write(source[1], "ab", 2));
		ssize_t moved = splice(source[0], NULL, end, NULL, 1, SPLICE_F_NONBLOCK);
		char rest[2];
		BUILD(read(source[0], rest, 2));
		if (moved != 1)
			break;
	}
	close(source[0]);
	close(source[1]);
	return count;
}

static void small(int ends[2])
{
	BUILD(pipe2(ends, O_NONBLOCK));
	BUILD(fcntl(ends[1], F_SETPIPE_SZ, PLACES * CONFORM_PAGE));
}

int main(int argc, char **argv)
{
	int full[2], partly[2], given[2], packets[2], mixed[2], source[2];
	char bytes[8 * CONFORM_PAGE];
	conform_start(argc, argv);
	small(full);
	small(partly);
	small(given);
	small(packets);
	small(mixed);
	BUILD(fcntl(packets[1], F_SETFL, O_NONBLOCK | O_DIRECT));
	BUILD(pipe(source));
	for (int i = 0; i < PLACES; i++) {
		char pair[2] = { (char)('a' + i), '-' }, rest[2];
		conform_write_all(source[1], pair, 2);
		BUILD(splice(source[0], NULL, full[1], NULL, 1, 0));
		if (i < PLACES - FREE) {
			conform_write_all(source[1], pair, 1);
			conform_read_all(source[0], rest, 1);
			BUILD(splice(source[0], NULL, partly[1], NULL, 1, 0));
		} else {
			conform_read_all(source[0], rest, 1);
		}
		conform_write_all(packets[1], pair, 1);
	}
	char *memory = conform_map(PLACES * CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	struct iovec pieces[PLACES - 1];
	for (int i = 0; i < PLACES - 1; i++) {
		memset(memory + i * CONFORM_PAGE, 'A' + i, CONFORM_PAGE);
		pieces[i] = (struct iovec){ memory + i * CONFORM_PAGE, (size_t)i + 1 };
	}
	EXPECT("pieces of memory", BUILD(vmsplice(given[1], pieces, PLACES - 1, 0)), PLACES * (PLACES - 1) / 2);
	/* Two thirds of a page each, which don't fit into one another. */
	memset(bytes, 'm', sizeof bytes);
	for (int i = 0; i < 6; i++)
		conform_write_all(mixed[1], bytes, CONFORM_PAGE * 2 / 3);
	conform_ready();
	conform_wait();
	struct pollfd set = { full[1], POLLOUT, 0 };
	EXPECT("room in a full pipe", poll(&set, 1, 0), 0);
	EXPECT_ERROR("a byte more", write(full[1], "x", 1), EAGAIN);
	EXPECT("free places", free_places(partly[1]), FREE);
	EXPECT("free places behind memory", free_places(given[1]), 1);
	EXPECT_ERROR("a packet more", write(packets[1], "x", 1), EAGAIN);
	EXPECT("free places behind large pieces", free_places(mixed[1]), PLACES - 6);
	conform_expect_bytes("what is in a full pipe", full[0], "abcdefghijklmnop");
	EXPECT("bytes then", read(partly[0], bytes, sizeof bytes), PLACES);
	EXPECT("the first", bytes[0], 'a');
	EXPECT("the last that was moved", bytes[PLACES - 1], 'a');
	EXPECT("memory", read(given[0], bytes, sizeof bytes), PLACES * (PLACES - 1) / 2 + 1);
	for (int i = 0, at = 0; i < PLACES - 1; at += ++i)
		EXPECT("a piece of memory", bytes[at], 'A' + i);
	for (int i = 0; i < PLACES; i++) {
		EXPECT("a packet", read(packets[0], bytes, sizeof bytes), 1);
		EXPECT("its byte", bytes[0], 'a' + i);
	}
	EXPECT("large pieces", read(mixed[0], bytes, sizeof bytes), CONFORM_PAGE * 2 / 3 * 6 + PLACES - 6);
	conform_pass();
}
