/*
 * Two io_urings, of which a child has one and its memory in common with its parent, without the descriptor of the
 * other.
 */
#include "uring.inc"

static struct ring common, own;

static void child(void *unused)
{
	(void)unused;
	BUILD(close(own.fd));
	conform_mark("born");
	conform_await("turn");
	EXPECT("completions that the child reads", ring_unread(&common), 2);
	ring_expect(&common, 21, 0);
	ring_expect(&common, 22, 0);
	ring_idle(&common, 5);
	ring_queue(&common, IORING_OP_NOP, -1, NULL, 0, 0, 23);
	ring_submit(&common, 0);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	common = ring_make(4, 0, 0);
	own = ring_make(2, 8, 0);
	ring_idle(&own, 3);
	pid_t pid = conform_spawn(child, NULL);
	conform_await("born");
	ring_queue(&common, IORING_OP_NOP, -1, NULL, 0, 0, 21);
	ring_submit(&common, 0);
	conform_ready();
	conform_wait();
	ring_queue(&common, IORING_OP_NOP, -1, NULL, 0, 0, 22);
	ring_submit(&common, 0);
	conform_mark("turn");
	conform_join(pid);
	EXPECT("completions that the child has left", ring_unread(&common), 1);
	ring_expect(&common, 23, 0);
	ring_idle(&common, 3);
	ring_idle(&own, 3);
	EXPECT("requests of the other ring", ring_get(own.head), 6);
	conform_pass();
}
