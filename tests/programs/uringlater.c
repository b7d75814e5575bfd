/*
 * An io_uring with a request in flight at the moment of the checkpoint that is done soon: the checkpoint waits for
 * it. A pipe is read and written over and over meanwhile.
 */
#include "uring.inc"

static struct ring ring, worked;
static int ends[2], file;
static uint64_t turns;

static void turn(void *unused)
{
	(void)unused;
	char byte = 0;
	ring_queue(&ring, IORING_OP_READ, ends[0], &byte, 1, 0, ++turns);
	ring_submit(&ring, 0);
	/* A thread of the kernel's does it. */
	ring_queue(&worked, IORING_OP_WRITE, file, "w", 1, turns, turns)->flags = IOSQE_ASYNC;
	ring_submit(&worked, 0);
	conform_sleep_ms(1);
	conform_write_all(ends[1], "x", 1);
	ring_submit(&ring, 1);
	ring_expect(&ring, turns, 1);
	EXPECT("what was read", byte, 'x');
	while (ring_unread(&worked) == 0)
		BUILD(syscall(SYS_io_uring_enter, worked.fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0));
	ring_expect(&worked, turns, 1);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	ring = ring_make(4, 0, 0);
	worked = ring_make(4, 0, 0);
	file = (int)BUILD(open(conform_path("file"), O_RDWR | O_CREAT | O_TRUNC, 0600));
	BUILD(pipe(ends));
	turn(NULL);
	conform_ready();
	conform_wait_with(turn, NULL);
	turn(NULL);
	EXPECT("requests taken", ring_get(ring.head), turns);
	EXPECT("requests that a thread of the kernel's took", ring_get(worked.head), turns);
	EXPECT("length of the file", lseek(file, 0, SEEK_END), turns + 1);
	conform_pass();
}
