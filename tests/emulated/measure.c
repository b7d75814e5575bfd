/*
 * A process that tells how long it stood still, and the machine's own limits beside that.
 *
 *     measure limits MIB     how long a fork of it takes, and a memcpy of its memory into fresh memory
 *     measure run MIB FILE   until FILE.end is there: a line in FILE for each time that it stood still longer than 3 ms:
 *                            when it went on (nanoseconds of the day), and for how many microseconds
 *     measure now            nanoseconds of the day
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_REALTIME, &time);
	return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static char *memory(size_t size)
{
	char *map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (map == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return map;
}

static char *filled(size_t size)
{
	char *map = memory(size);
	uint64_t word = 1;
	for (size_t at = 0; at < size; at += sizeof word) {
		word = word * 6364136223846793005u + 1442695040888963407u;
		memcpy(map + at, &word, sizeof word);
	}
	return map;
}

static void limits(size_t size)
{
	char *from = filled(size);
	int64_t began = now();
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	int64_t forked = now() - began;
	waitpid(child, NULL, 0);
	char *to = memory(size);
	began = now();
	memcpy(to, from, size);
	int64_t copied = now() - began;
	printf("fork of %zu MiB %.1f ms, memcpy of it %.1f ms\n", size >> 20, (double)forked / 1e6,
	       (double)copied / 1e6);
}

static void run(size_t size, const char *path)
{
	enum { STILL = 3000000, LOOK_US = 500 };
	char end[4096];
	snprintf(end, sizeof end, "%s.end", path);
	const char *kept = filled(size);
	FILE *file = fopen(path, "a");
	if (!file) {
		perror(path);
		exit(1);
	}
	int64_t last = now();
	for (unsigned turn = 0; turn % 64 != 0 || access(end, F_OK) != 0; turn++) {
		int64_t time = now();
		if (time - last > STILL) {
			fprintf(file, "%lld %lld\n", (long long)time, (long long)(time - last) / 1000);
			fflush(file);
			time = now();
		}
		last = time;
		usleep(LOOK_US);
	}
	exit(kept[0] == 0);
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "now") == 0)
		printf("%lld\n", (long long)now());
	else if (argc == 3 && strcmp(argv[1], "limits") == 0)
		limits((size_t)atol(argv[2]) << 20);
	else if (argc == 4 && strcmp(argv[1], "run") == 0)
		run((size_t)atol(argv[2]) << 20, argv[3]);
	else
		return 2;
	return 0;
}
