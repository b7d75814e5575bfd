/*
 * An io_uring of a single thread, which tells nobody else what is registered with it: an eventfd. Threads have
 * registered rings themselves, and call them by their numbers among these.
 */
#include "uring.inc"
#include <pthread.h>
#include <sys/eventfd.h>

enum { RING_FDS = 20, BY_PLACE = 1 << 4 };

static struct ring ring;

static unsigned place(unsigned wanted)
{
	struct io_uring_rsrc_update update = { .offset = wanted, .data = (uint64_t)ring.fd };
	EXPECT("rings registered", syscall(SYS_io_uring_register, ring.fd, RING_FDS, &update, 1), 1);
	return update.offset;
}

static void *other(void *unused)
{
	(void)unused;
	unsigned own = place(9);
	conform_mark("registered");
	conform_await("turn");
	EXPECT("the other thread's number", syscall(SYS_io_uring_enter, own, 0, 0, BY_PLACE, NULL, 0), 0);
	EXPECT_ERROR("a number that is free", syscall(SYS_io_uring_enter, 3, 0, 0, BY_PLACE, NULL, 0), EBADF);
	return NULL;
}

/* A process with a ring of its own, which two of its threads have registered. */
static void threads(void *unused)
{
	(void)unused;
	BUILD(close(ring.fd));
	BUILD(munmap(ring.requests, ring.entries * ring.request));
	BUILD(munmap((void *)((uintptr_t)ring.head / CONFORM_PAGE * CONFORM_PAGE), CONFORM_PAGE));
	ring = ring_make(4, 0, 0);
	unsigned own = place(2);
	pthread_t thread;
	BUILD0(pthread_create(&thread, NULL, other, NULL));
	conform_await("turn");
	EXPECT("the first thread's number", syscall(SYS_io_uring_enter, own, 0, 0, BY_PLACE, NULL, 0), 0);
	EXPECT_ERROR("the other thread's number", syscall(SYS_io_uring_enter, 9, 0, 0, BY_PLACE, NULL, 0), EBADF);
	BUILD0(pthread_join(thread, NULL));
	ring_idle(&ring, 3);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	if (!ring_try(&ring, 8, 0, URING_SINGLE_ISSUER | URING_DEFER_TASKRUN))
		conform_skip("this kernel has no rings of a single thread");
	int event = (int)BUILD(eventfd(0, EFD_NONBLOCK));
	BUILD(syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_EVENTFD, &event, 1));
	unsigned own = place(-1U);
	pid_t child = conform_spawn(threads, NULL);
	conform_await("registered");
	ring_idle(&ring, 3);
	conform_ready();
	conform_wait();
	uint64_t value = 0;
	BUILD(read(event, &value, 8));
	EXPECT("completions told", value, 3);
	for (unsigned i = 0; i < 5; i++) {
		ring_queue(&ring, IORING_OP_NOP, -1, NULL, 0, 0, i);
		unsigned flags = IORING_ENTER_GETEVENTS | BY_PLACE;
		EXPECT("requests taken", syscall(SYS_io_uring_enter, own, 1, 1, flags, NULL, 0), 1);
		ring_expect(&ring, i, 0);
	}
	BUILD(read(event, &value, 8));
	EXPECT("completions told afterwards", value, 5);
	conform_mark("turn");
	conform_join(child);
	conform_pass();
}
