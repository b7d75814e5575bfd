/*
 * A context of asynchronous input and output with requests in flight that wait for a descriptor. A refused checkpoint leaves
 * places and events as they were.
 */
#include "../aio.inc"

enum { EVENTS = 7, WAITING = 2 };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	aio_context_t context = aio_make(8);
	int ready = (int)BUILD(eventfd(1, 0)), empty = (int)BUILD(eventfd(0, 0));
	struct iocb waits[WAITING] = { aio_poll(empty, 70), aio_poll(empty, 71) };
	struct iocb over = aio_poll(ready, 5);
	if (aio_submit(context, &waits[0]) != 1)
		conform_skip("this kernel's contexts don't wait for descriptors");
	aio_spend(context, ready, aio_ring(context)->places - 3);
	BUILD(aio_submit(context, &waits[1]));
	for (int i = 0; i < EVENTS; i++)
		BUILD(aio_submit(context, &over));
	struct aio_ring *ring = aio_ring(context);
	size_t size = sizeof *ring + ring->places * sizeof ring->events[0];
	char *before = conform_map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	memcpy(before, ring, size);
	conform_expect_asked_refusal(getpid());
	conform_ready();
	conform_wait();
	unsigned head = aio_head(context);
	EXPECT("the program's place", head, ((struct aio_ring *)before)->head);
	EXPECT("the kernel's place", aio_tail(context), ((struct aio_ring *)before)->tail);
	struct io_event event;
	for (int i = 0; i < EVENTS; i++) {
		EXPECT("an event", syscall(SYS_io_getevents, context, 1, 1, &event, NULL), 1);
		EXPECT("data of an event", event.data, 5);
		EXPECT("request of an event", event.obj, (uintptr_t)&over);
	}
	uint64_t one = 1;
	conform_write_all(empty, &one, sizeof one);
	bool seen[WAITING] = { false, false };
	for (int i = 0; i < WAITING; i++) {
		EXPECT("an event", syscall(SYS_io_getevents, context, 1, 1, &event, NULL), 1);
		EXPECT_BETWEEN("data of a request that waited", event.data, 70, 71);
		EXPECT("what has come", event.res, 1);
		seen[event.data - 70] = true;
	}
	EXPECT("both have come", seen[0] && seen[1], 1);
	EXPECT("nothing more", aio_unread(context), 0);
	EXPECT_BETWEEN("requests that can wait", aio_room(context), 8, ring->places - 1);
	BUILD(syscall(SYS_io_destroy, context));
	conform_pass();
}
