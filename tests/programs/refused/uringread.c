/*
 * An io_uring with a read in flight, for which the program waits: it must go on to wait after the refusal, and get
 * what it reads.
 */
#include "../uring.inc"
#include <pthread.h>

static struct ring ring;
static char byte;

static void *reader(void *unused)
{
	(void)unused;
	ring_submit(&ring, 0);
	while (ring_unread(&ring) == 0)
		BUILD(syscall(SYS_io_uring_enter, ring.fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0));
	ring_expect(&ring, 1, 1);
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	ring = ring_make(4, 0, 0);
	int ends[2];
	pthread_t thread;
	BUILD(pipe(ends));
	ring_queue(&ring, IORING_OP_READ, ends[0], &byte, 1, 0, 1);
	BUILD0(pthread_create(&thread, NULL, reader, NULL));
	while (ring_get(ring.head) == 0)
		conform_sleep_ms(1);
	conform_expect_refusal(getpid(), ring.fd);
	conform_ready();
	conform_wait();
	conform_write_all(ends[1], "y", 1);
	BUILD0(pthread_join(thread, NULL));
	EXPECT("what was read", byte, 'y');
	ring_idle(&ring, 3);
	conform_pass();
}
