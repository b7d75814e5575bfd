/*
 * A context of asynchronous input and output that is in use all the time: one thread submits direct reads and writes, the other
 * waits for their events (io_getevents). No event is lost, comes twice or is another, no wait is interrupted, and the eventfd
 * that is told of them counts as many.
 */
#include "aio.inc"
#include <pthread.h>

enum { BLOCK = 4096, BLOCKS = 16, LAST = 1 << 30 };

static aio_context_t context;
static unsigned char *blocks[2][BLOCKS];
static struct iocb orders[BLOCKS];
static int fd, given, never;
static unsigned rounds, ended;

static void *waiter(void *argument)
{
	for (;;) {
		struct io_event events[BLOCKS];
		struct timespec limit = { .tv_sec = 3600 };
		long count = syscall(SYS_io_getevents, context, 1, BLOCKS, events, &limit);
		if (count < 1)
			conform_fail("io_getevents: %ld, errno %d", count, errno);
		for (long i = 0; i < count; i++) {
			if (events[i].data == LAST)
				return argument;
			EXPECT("request of an event", events[i].obj, (uintptr_t)&orders[events[i].data % BLOCKS]);
			EXPECT("round of an event", events[i].data / BLOCKS, rounds);
			EXPECT("bytes of an event", events[i].res, BLOCK);
			__atomic_add_fetch(&ended, 1, __ATOMIC_ACQ_REL);
		}
	}
}

static void submit_all(int opcode, int buffers)
{
	struct iocb *all[BLOCKS];
	rounds++;
	for (int i = 0; i < BLOCKS; i++) {
		orders[i] = aio_order(opcode, fd, blocks[buffers][i], BLOCK, (off_t)i * BLOCK, rounds * BLOCKS + (unsigned)i);
		orders[i].aio_flags = IOCB_FLAG_RESFD;
		orders[i].aio_resfd = (uint32_t)given;
		all[i] = &orders[i];
	}
	for (long done = 0; done < BLOCKS;)
		done += BUILD(syscall(SYS_io_submit, context, BLOCKS - done, all + done));
	uint64_t told = 0, count;
	while (told < BLOCKS) {
		conform_read_all(given, &count, sizeof count);
		told += count;
	}
	EXPECT("events that an eventfd tells of", told, BLOCKS);
	while (__atomic_load_n(&ended, __ATOMIC_ACQUIRE) < rounds * BLOCKS)
		sched_yield();
}

static void round_trip(void *argument)
{
	(void)argument;
	for (int round = 0; round < 10; round++) {
		for (int i = 0; i < BLOCKS; i++)
			conform_fill(blocks[0][i], BLOCK, rounds + (unsigned)i);
		unsigned seed = rounds;
		submit_all(IOCB_CMD_PWRITE, 0);
		for (int i = 0; i < BLOCKS; i++)
			memset(blocks[1][i], 0, BLOCK);
		submit_all(IOCB_CMD_PREAD, 1);
		for (int i = 0; i < BLOCKS; i++)
			conform_verify("what was written and read", blocks[1][i], BLOCK, seed + (unsigned)i);
	}
}

int main(int argc, char **argv)
{
	pthread_t thread;
	conform_start(argc, argv);
	fd = open(conform_path("file"), O_RDWR | O_CREAT | O_DIRECT, 0600);
	if (fd < 0)
		fd = (int)BUILD(open(conform_path("file"), O_RDWR | O_CREAT, 0600));
	given = (int)BUILD(eventfd(0, 0));
	never = (int)BUILD(eventfd(1, 0));
	for (int i = 0; i < 2 * BLOCKS; i++)
		blocks[i / BLOCKS][i % BLOCKS] =
			conform_map(BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	context = aio_make(BLOCKS);
	BUILD0(pthread_create(&thread, NULL, waiter, NULL));
	round_trip(NULL);
	conform_ready();
	conform_wait_with(round_trip, NULL);
	struct iocb last = aio_poll(never, LAST);
	BUILD(aio_submit(context, &last));
	BUILD0(pthread_join(thread, NULL));
	EXPECT("nothing more", aio_unread(context), 0);
	BUILD(syscall(SYS_io_destroy, context));
	conform_pass();
}
