/*
 * A job of a given size along one axis. Results are lines appended to a file that is not held open: "alone" is how
 * many nanoseconds the machine takes to make as much by itself, "ready" that all of it is there, "gap" that the job
 * ran again after it had stood still, and when (CLOCK_REALTIME).
 *
 * scale RESULTS processes|threads|descriptors|mappings|memory|connections N
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "many.h"
#include "results.h"

enum {
	PAGE = 4096,
	/* A pause that is longer than any the scheduler makes. */
	LEAST_GAP_NS = 20 * 1000 * 1000,
	/* How often the job looks at the clock. */
	LOOK_NS = 1000 * 1000,
	STACK = 16 * 1024,
	/* MiB of address space for each that is filled. */
	RESERVED = 8,
	/* Connections that wait to be accepted. */
	BACKLOG = 128,
	/* Descriptors beside those that are counted. */
	SPARE = 256,
};

/* What the kernel takes at least: to make each and to see its end. */
static void processes_alone(long count)
{
	pid_t *children = calloc((size_t)count, sizeof *children);
	if (!children)
		die("calloc");
	for (long made = 0; made < count; made++) {
		children[made] = fork();
		if (children[made] < 0)
			die("fork");
		if (children[made] == 0)
			idle(NULL);
	}
	for (long made = 0; made < count; made++)
		kill(children[made], SIGKILL);
	for (long made = 0; made < count; made++)
		waitpid(children[made], NULL, 0);
	free(children);
}

static void make_threads(long count)
{
	pthread_attr_t attributes;
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, STACK);
	for (long made = 1; made < count; made++) {
		pthread_t id;
		if (pthread_create(&id, &attributes, idle, NULL) != 0)
			die("pthread_create");
	}
}

/* In turn a pipe with a few bytes in it, an event counter, and a file, which is the program's own. */
static void make_descriptors(long count)
{
	for (long made = 0, turn = 0; made < count; turn++) {
		int ends[2] = { -1, -1 };
		switch (turn % 3) {
		case 0:
			if (pipe(ends) != 0 || write(ends[1], &made, sizeof made) != sizeof made)
				die("pipe");
			made += 2;
			break;
		case 1:
			if (eventfd((unsigned)made, 0) < 0)
				die("eventfd");
			made++;
			break;
		default:
			if (open("/proc/self/exe", O_RDONLY) < 0)
				die("open");
			made++;
		}
	}
}

/* Single pages, of which neighbours may not be joined. */
static void make_mappings(long count)
{
	char *memory = mmap(NULL, (size_t)count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		die("mmap");
	for (long page = 0; page < count; page++)
		memory[page * PAGE] = (char)page;
	for (long page = 0; page < count; page += 2)
		if (mprotect(memory + page * PAGE, PAGE, PROT_READ) != 0)
			die("mprotect");
}

/* MiB of it, in eight times as much address space. Every page is unlike all others and made smaller by compression. */
static void make_memory(long count)
{
	size_t bytes = (size_t)count << 20;
	char *memory = mmap(NULL, bytes * RESERVED, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED || madvise(memory, bytes * RESERVED, MADV_NOHUGEPAGE) != 0)
		die("mmap");
	/* A MiB here, and seven that were never touched. */
	for (size_t at = 0; at < bytes; at += PAGE)
		memcpy(memory + (at >> 20) * (RESERVED << 20) + (at & ((1 << 20) - 1)), &at, sizeof at);
}

/* Between two processes, each with one end of every connection. */
static void make_connections(long count)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof address;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	int done[2];
	if (listener < 0 || bind(listener, (struct sockaddr *)&address, length) != 0 ||
	    listen(listener, BACKLOG) != 0 || getsockname(listener, (struct sockaddr *)&address, &length) != 0)
		die("listen");
	if (pipe(done) != 0)
		die("pipe");
	pid_t child = fork();
	if (child < 0)
		die("fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (long made = 0; made < count; made++)
			if (accept(listener, NULL, NULL) < 0)
				die("accept");
		close(done[0]);
		close(done[1]);
		idle(NULL);
	}
	for (long made = 0; made < count; made++) {
		int end = socket(AF_INET, SOCK_STREAM, 0);
		if (end < 0 || connect(end, (struct sockaddr *)&address, length) != 0)
			die("connect");
	}
	/* The other process has accepted all. */
	char none;
	close(done[1]);
	if (read(done[0], &none, 1) != 0)
		die("accept");
	close(done[0]);
}

struct axis {
	const char *name;
	void (*make)(long count);
	/* What is measured as the machine's limit; NULL: making it. */
	void (*alone)(long count);
};

static const struct axis axes[] = {
	{ "processes", make_processes, processes_alone }, { "threads", make_threads, NULL },
	{ "descriptors", make_descriptors, NULL },	  { "mappings", make_mappings, NULL },
	{ "memory", make_memory, NULL },		  { "connections", make_connections, NULL },
};

/* Tells when it ran again after it had stood still. */
static void watch(void)
{
	const struct timespec look = { .tv_nsec = LOOK_NS };
	int64_t last = now(CLOCK_REALTIME);
	for (;;) {
		nanosleep(&look, NULL);
		int64_t time = now(CLOCK_REALTIME);
		if (time - last > LEAST_GAP_NS) {
			tell("gap %lld\n", (long long)time);
			time = now(CLOCK_REALTIME);
		}
		last = time;
	}
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	results = argv[1];
	long count = atol(argv[3]);
	raise_limit((rlim_t)count + SPARE);
	for (size_t at = 0; at < sizeof axes / sizeof *axes; at++) {
		const struct axis *axis = &axes[at];
		if (strcmp(axis->name, argv[2]) != 0)
			continue;
		int64_t start = now(CLOCK_MONOTONIC);
		if (axis->alone)
			axis->alone(count);
		else
			axis->make(count);
		tell("alone %lld\n", (long long)(now(CLOCK_MONOTONIC) - start));
		if (axis->alone)
			axis->make(count);
		tell("ready\n");
		watch();
	}
	return 2;
}
