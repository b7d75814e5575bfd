/*
 * A process of a given size, for measuring. On SIGUSR1 it measures the machine's limits in itself; results are
 * lines appended to a file that is not held open.
 *
 * measure RESULTS [--private MIB] [--shared MIB] [--threads N] [--processes N] [--descriptors N] [--watch] [--fresh MIB]
 *         [--scatter PERCENT]
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include "many.h"
#include "results.h"

enum {
	PAGE = 4096,
	/* A pause that is longer than any the scheduler makes. */
	LEAST_GAP_NS = 100 * 1000 * 1000,
	/* Descriptors beside those that are counted. */
	SPARE = 256,
};

static unsigned char *map(size_t bytes, int sharing)
{
	unsigned char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		die("mmap");
	if (sharing == MAP_PRIVATE && madvise(memory, bytes, MADV_NOHUGEPAGE) != 0)
		die("madvise");
	return memory;
}

/* Bytes that no compression makes smaller. */
static void fill(unsigned char *memory, size_t bytes, uint64_t seed)
{
	uint64_t state = seed * 2 + 1;
	for (size_t at = 0; at < bytes; at += sizeof state) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		memcpy(memory + at, &state, sizeof state);
	}
}

/* So that every page is this process's own and writable, as in a program at work. */
static void touch(unsigned char *memory, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += PAGE)
		memory[at]++;
}

/* Writes to some of the pages, anywhere: how long that takes. */
static void measure_writes(unsigned char *memory, size_t bytes, size_t percent)
{
	static uint64_t state = 88172645463325252ULL;
	size_t pages = bytes / PAGE;
	int64_t start = now(CLOCK_MONOTONIC);
	for (size_t left = pages * percent / 100; left > 0; left--) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		memory[state % pages * PAGE]++;
	}
	tell("writes %lld\n", (long long)(now(CLOCK_MONOTONIC) - start));
}

static void measure_fork(void)
{
	int64_t start = now(CLOCK_MONOTONIC);
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	int64_t end = now(CLOCK_MONOTONIC);
	if (child < 0 || waitpid(child, NULL, 0) != child)
		die("fork");
	tell("fork %lld\n", (long long)(end - start));
}

static void measure_copy(const unsigned char *memory, size_t bytes)
{
	unsigned char *copy = malloc(bytes);
	if (!copy)
		die("malloc");
	int64_t start = now(CLOCK_MONOTONIC);
	memcpy(copy, memory, bytes);
	int64_t end = now(CLOCK_MONOTONIC);
	tell("copy %lld %d\n", (long long)(end - start), copy[bytes / 2]);
	free(copy);
}

/* Tells when it ran again after it had stood still. */
static void watch(void)
{
	int64_t last = now(CLOCK_REALTIME);
	for (;;) {
		int64_t time = now(CLOCK_REALTIME);
		if (time - last > LEAST_GAP_NS) {
			tell("gap %lld\n", (long long)time);
			time = now(CLOCK_REALTIME);
		}
		last = time;
	}
}

static void share(unsigned char *memory, size_t bytes)
{
	pid_t child = fork();
	if (child < 0)
		die("fork");
	if (child > 0)
		return;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	touch(memory, bytes);
	tell("child\n");
	idle(NULL);
}

/* So many descriptors, of pipes without anything in them. */
static void have_descriptors(int count)
{
	raise_limit((rlim_t)count + SPARE);
	for (int ends[2]; count > 0; count -= 2) {
		if (pipe2(ends, O_CLOEXEC) != 0)
			die("pipe2");
	}
}

int main(int argc, char **argv)
{
	static const struct option names[] = {
		{ "private", required_argument, NULL, 'p' }, { "shared", required_argument, NULL, 's' },
		{ "threads", required_argument, NULL, 't' }, { "watch", no_argument, NULL, 'w' },
		{ "fresh", required_argument, NULL, 'f' },   { "scatter", required_argument, NULL, 'c' },
		{ "processes", required_argument, NULL, 'n' }, { "descriptors", required_argument, NULL, 'd' },
		{ NULL, 0, NULL, 0 },
	};
	size_t private_bytes = 0, shared_bytes = 0, fresh_bytes = 0, scattered = 0;
	int threads = 1, processes = 1, descriptors = 0, watching = 0;
	for (int option; (option = getopt_long(argc, argv, "", names, NULL)) != -1;) {
		switch (option) {
		case 'p': private_bytes = strtoul(optarg, NULL, 10) << 20; break;
		case 's': shared_bytes = strtoul(optarg, NULL, 10) << 20; break;
		case 'f': fresh_bytes = strtoul(optarg, NULL, 10) << 20; break;
		case 'c': scattered = strtoul(optarg, NULL, 10); break;
		case 't': threads = atoi(optarg); break;
		case 'n': processes = atoi(optarg); break;
		case 'd': descriptors = atoi(optarg); break;
		case 'w': watching = 1; break;
		default: return 2;
		}
	}
	if (optind != argc - 1)
		return 2;
	results = argv[optind];
	sigset_t wanted;
	sigemptyset(&wanted);
	sigaddset(&wanted, SIGUSR1);
	sigprocmask(SIG_BLOCK, &wanted, NULL);

	unsigned char *private = private_bytes ? map(private_bytes, MAP_PRIVATE) : NULL;
	unsigned char *shared = shared_bytes ? map(shared_bytes, MAP_SHARED) : NULL;
	fill(private, private_bytes, 1);
	fill(shared, shared_bytes, 2);
	if (shared)
		share(shared, shared_bytes);
	make_processes(processes - 1);
	have_descriptors(descriptors);
	for (int thread = 1; thread < threads; thread++) {
		pthread_t id;
		if (pthread_create(&id, NULL, idle, NULL) != 0)
			die("pthread_create");
	}
	if (fresh_bytes)
		tell("fresh %llu\n", (unsigned long long)(uintptr_t)map(fresh_bytes, MAP_PRIVATE));
	tell("ready\n");
	if (watching)
		watch();
	for (;;) {
		int signal;
		sigwait(&wanted, &signal);
		if (scattered) {
			measure_writes(private, private_bytes, scattered);
			tell("measured\n");
			continue;
		}
		touch(private, private_bytes);
		if (private)
			measure_fork();
		touch(private, private_bytes);
		if (shared)
			measure_copy(shared, shared_bytes);
		tell("measured\n");
	}
}
