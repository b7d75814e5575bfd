/*
 * An io_uring with a request in flight at the moment of the checkpoint that is done soon: the checkpoint waits for
 * it. A pipe is read and written over and over meanwhile.
 */
#include "uring.inc"

static struct ring ring;
static int ends[2];
static uint64_t turns;

static void turn(void *unused)
{
	(void)unused;
	char byte = 0;
	ring_queue(&ring, IORING_OP_READ, ends[0], &byte, 1, 0, ++turns);
	ring_submit(&ring, 0);
	conform_sleep_ms(1);
	conform_write_all(ends[1], "x", 1);
	ring_submit(&ring, 1);
	ring_expect(&ring, turns, 1);
	EXPECT("what was read", byte, 'x');
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	ring = ring_make(4, 0, 0);
	BUILD(pipe(ends));
	turn(NULL);
	conform_ready();
	conform_wait_with(turn, NULL);
	turn(NULL);
	EXPECT("requests taken", ring_get(ring.head), turns);
	conform_pass();
}
