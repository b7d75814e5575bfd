/* epoll: level, edge, one-shot, nested, their data; a thread waiting in it; shared with a child. */
#include "conform.h"
#include <pthread.h>
#include <sys/epoll.h>

enum { LEVEL, EDGE, SHOT, NESTED, IDLE, KINDS };
static int outer, pipes[KINDS][2];

static void add(int poll, int fd, uint32_t events, uint64_t data)
{
	struct epoll_event event = { .events = events, .data.u64 = data };
	BUILD(epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event));
}

/* The events waiting now, as a set of the data's low bits; every datum must have its high part. */
static unsigned waiting(int poll)
{
	struct epoll_event events[16];
	unsigned set = 0;
	int found = (int)BUILD(epoll_wait(poll, events, 16, 0));
	for (int i = 0; i < found; i++) {
		EXPECT("high part of the data", events[i].data.u64 >> 8, 0xfeedfacecafe);
		set |= 1u << (events[i].data.u64 & 0xff);
	}
	return set;
}

static void *waits(void *unused)
{
	(void)unused;
	struct epoll_event event;
	int fd = BUILD(epoll_create1(EPOLL_CLOEXEC));
	add(fd, pipes[IDLE][0], EPOLLIN, 5);
	EXPECT("blocked epoll_wait", epoll_wait(fd, &event, 1, -1), 1);
	EXPECT("data of the blocked epoll_wait", event.data.u64, 5);
	return NULL;
}

static void child(void *unused)
{
	(void)unused;
	conform_mark("born");
	conform_wait();
	conform_await("checked");
	EXPECT("epoll shared with the parent", waiting(outer) & (1u << LEVEL), 1u << LEVEL);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t thread;
	uint64_t high = 0xfeedfacecafeull << 8;
	outer = BUILD(epoll_create1(0));
	int inner = BUILD(epoll_create1(EPOLL_CLOEXEC));
	for (int i = 0; i < KINDS; i++)
		BUILD(pipe(pipes[i]));
	add(outer, pipes[LEVEL][0], EPOLLIN, high | LEVEL);
	add(outer, pipes[EDGE][0], EPOLLIN | EPOLLET, high | EDGE);
	add(outer, pipes[SHOT][0], EPOLLIN | EPOLLONESHOT, high | SHOT);
	add(inner, pipes[NESTED][0], EPOLLIN, high | NESTED);
	add(outer, inner, EPOLLIN, high | NESTED);
	for (int i = 0; i < KINDS; i++)
		if (i != IDLE)
			conform_write_all(pipes[i][1], "x", 1);
	unsigned first = waiting(outer);
	EXPECT("events at first", first, 1u << LEVEL | 1u << EDGE | 1u << SHOT | 1u << NESTED);
	pid_t process = conform_spawn(child, NULL);
	BUILD0(pthread_create(&thread, NULL, waits, NULL));
	conform_await("born");
	conform_sleep_ms(10);
	conform_ready();
	conform_wait();
	/* An edge may be reported once more, but never lost; a one-shot that has fired stays silent. */
	EXPECT("events afterwards", waiting(outer) & ~(1u << EDGE), 1u << LEVEL | 1u << NESTED);
	conform_write_all(pipes[EDGE][1], "y", 1);
	EXPECT("new edge", waiting(outer) & 1u << EDGE, 1u << EDGE);
	struct epoll_event again = { .events = EPOLLIN | EPOLLONESHOT, .data.u64 = high | SHOT };
	BUILD(epoll_ctl(outer, EPOLL_CTL_MOD, pipes[SHOT][0], &again));
	EXPECT("one-shot armed again", waiting(outer) & 1u << SHOT, 1u << SHOT);
	EXPECT("nested epoll", waiting(inner), 1u << NESTED);
	conform_mark("checked");
	conform_join(process);
	conform_write_all(pipes[IDLE][1], "z", 1);
	BUILD0(pthread_join(thread, NULL));
	conform_pass();
}
