/*
 * Contexts of asynchronous input and output at rest, of several sizes: with events that nobody has taken, in the middle of the
 * ring and across its end, many, none, and some that the program has taken out of the ring itself.
 * Places, events, room and the thread's processors are the same afterwards, and new requests work.
 */
#include "aio.inc"
#include <sched.h>

enum { CONTEXTS = 6, PART = 512, PARTS = 32 };

static aio_context_t contexts[CONTEXTS];
static struct iocb orders[CONTEXTS][AIO_MOST];
static char bytes[CONTEXTS][PARTS * PART];
static unsigned heads[CONTEXTS], tails[CONTEXTS], rooms[CONTEXTS];

/* Reads of parts of a file, whose events stay in the ring. */
static void leave(int which, int fd, unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		unsigned part = i % PARTS;
		orders[which][i] = aio_order(IOCB_CMD_PREAD, fd, bytes[which] + part * PART, PART, part * PART,
					     which * 100000 + i);
		BUILD(aio_submit(contexts[which], &orders[which][i]));
	}
	EXPECT("events in the ring", aio_unread(contexts[which]), count);
}

static void check(int which, unsigned count, struct io_event *event)
{
	EXPECT("data of an event", event->data, which * 100000 + (int)count);
	EXPECT("request of an event", event->obj, (uintptr_t)&orders[which][count]);
	EXPECT("result of an event", event->res, PART);
	EXPECT("second result of an event", event->res2, 0);
}

static void take(int which, unsigned first, unsigned count)
{
	for (unsigned i = first; i < first + count; i++) {
		struct io_event event;
		EXPECT("an event", syscall(SYS_io_getevents, contexts[which], 1, 1, &event, NULL), 1);
		check(which, i, &event);
	}
}

/* As programs do that read the ring themselves. */
static void take_in_the_ring(int which, unsigned first, unsigned count)
{
	struct aio_ring *ring = aio_ring(contexts[which]);
	for (unsigned i = first; i < first + count; i++) {
		unsigned head = aio_head(contexts[which]);
		EXPECT("there is an event", head != aio_tail(contexts[which]), 1);
		check(which, i, &ring->events[head]);
		__atomic_store_n(&ring->head, (head + 1) % ring->places, __ATOMIC_RELEASE);
	}
}

/* Free places of a context are kept by the processors where requests ended. Afterwards the thread stays on the last one. */
static cpu_set_t spread(int ready)
{
	cpu_set_t all, one;
	CPU_ZERO(&one);
	BUILD(sched_getaffinity(0, sizeof all, &all));
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		if (!CPU_ISSET(cpu, &all))
			continue;
		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		BUILD(sched_setaffinity(0, sizeof one, &one));
		for (int i = 0; i < CONTEXTS; i++)
			aio_spend(contexts[i], ready, 7);
	}
	return one;
}

int main(int argc, char **argv)
{
	static const unsigned sizes[CONTEXTS] = { 8, 200, 1, 32, 8, 1000 };
	char content[PARTS * PART];
	conform_start(argc, argv);
	int fd = (int)BUILD(open(conform_path("file"), O_RDWR | O_CREAT, 0600));
	conform_fill(content, sizeof content, 7);
	conform_write_all(fd, content, sizeof content);
	int ready = (int)BUILD(eventfd(1, 0)), given = (int)BUILD(eventfd(0, 0));
	struct iocb probe = aio_poll(ready, 0);
	for (int i = 0; i < CONTEXTS; i++) {
		contexts[i] = aio_make(sizes[i]);
		EXPECT("the ring's mark", aio_ring(contexts[i])->magic, 0xa10a10a1);
	}
	if (aio_submit(contexts[0], &probe) != 1)
		conform_skip("this kernel's contexts don't wait for descriptors");
	struct io_event event;
	BUILD(syscall(SYS_io_getevents, contexts[0], 1, 1, &event, NULL));
	for (int i = 0; i < CONTEXTS; i++)
		rooms[i] = aio_room(contexts[i]);
	cpu_set_t where = spread(ready), now;
	/* In the middle. */
	aio_spend(contexts[0], ready, 2 * aio_ring(contexts[0])->places + 40 - aio_tail(contexts[0]));
	leave(0, fd, 9);
	take(0, 0, 4);
	/* Across the end. */
	aio_spend(contexts[1], ready, 2 * aio_ring(contexts[1])->places - 3 - aio_tail(contexts[1]));
	leave(1, fd, 30);
	take(1, 0, 1);
	/* Context 2 is left as it is. Taken by the program: */
	leave(3, fd, 20);
	take_in_the_ring(3, 0, 6);
	/* Half of what there is room for: other processors may keep the rest. */
	leave(4, fd, rooms[4] / 2);
	aio_spend(contexts[5], ready, 1500);
	leave(5, fd, 700);
	take_in_the_ring(5, 0, 3);
	for (int i = 0; i < CONTEXTS; i++) {
		heads[i] = aio_head(contexts[i]);
		tails[i] = aio_tail(contexts[i]);
	}
	conform_ready();
	conform_wait();
	BUILD(sched_getaffinity(0, sizeof now, &now));
	EXPECT("the thread's processors", CPU_EQUAL(&now, &where) != 0, 1);
	for (int i = 0; i < CONTEXTS; i++) {
		EXPECT("the program's place", aio_head(contexts[i]), heads[i]);
		EXPECT("the kernel's place", aio_tail(contexts[i]), tails[i]);
	}
	take(0, 4, 5);
	take_in_the_ring(1, 1, 29);
	take_in_the_ring(3, 6, 5);
	take(3, 11, 9);
	take(4, 0, rooms[4] / 2);
	take(5, 3, 697);
	for (int i = 0; i < CONTEXTS; i++) {
		EXPECT("nothing more", aio_unread(contexts[i]), 0);
		/* Some may be kept by another processor. */
		unsigned most = aio_ring(contexts[i])->places - 1;
		EXPECT_BETWEEN("requests that can wait", aio_room(contexts[i]), sizes[i], most);
		memset(bytes[i], 0, sizeof bytes[i]);
		for (int round = 0; round < 3; round++) {
			leave(i, fd, PARTS);
			take(i, 0, PARTS);
		}
		conform_verify("bytes read", bytes[i], sizeof content, 7);
		struct iocb order = aio_order(IOCB_CMD_PWRITE, fd, content, PART, 0, 5);
		order.aio_flags = IOCB_FLAG_RESFD;
		order.aio_resfd = (uint32_t)given;
		BUILD(aio_submit(contexts[i], &order));
		uint64_t count = 0;
		conform_read_all(given, &count, sizeof count);
		EXPECT("events that an eventfd tells of", count, 1);
		EXPECT("event of a write", syscall(SYS_io_getevents, contexts[i], 1, 1, &event, NULL), 1);
		EXPECT("data of a write", event.data, 5);
		EXPECT("bytes written", event.res, PART);
		BUILD(syscall(SYS_io_destroy, contexts[i]));
		EXPECT("a context that is gone", conform_faults((char *)(uintptr_t)contexts[i], false), 1);
	}
	conform_pass();
}
