/* Clocks of a time namespace of a program's own (time_namespaces(7)). */
#ifndef CLOCKS_H
#define CLOCKS_H
#include "namespaces.h"

enum { NEW_TIME = 0x80 };
/* Seconds by which they are ahead. */
enum { AHEAD_MONOTONIC = 1000000, AHEAD_BOOTTIME = 2000000 };
static const int64_t SECOND = 1000000000;

/* Offsets of the clocks that the children of a process have. */
static inline void clock_offsets(const char *process, int64_t offsets[2])
{
	char path[64], text[256];
	snprintf(path, sizeof path, "/proc/%s/timens_offsets", process);
	conform_read_file(path, text, sizeof text);
	long long seconds[2], nanoseconds[2];
	if (sscanf(text, "monotonic %lld %lld boottime %lld %lld", &seconds[0], &nanoseconds[0], &seconds[1],
		   &nanoseconds[1]) != 4)
		conform_fail("offsets are %s", text);
	for (int i = 0; i < 2; i++)
		offsets[i] = seconds[i] * SECOND + nanoseconds[i];
}

/* By how much the clocks that the children of this process have are ahead of the job's, in nanoseconds. */
static inline void expect_ahead(const char *what, int64_t monotonic, int64_t boottime)
{
	int64_t job[2], own[2];
	clock_offsets("1", job);
	clock_offsets("self", own);
	EXPECT(what, own[0] - job[0], monotonic);
	EXPECT(what, own[1] - job[1], boottime);
}

/* Sets them; an error number. */
static inline int set_ahead(int64_t monotonic, int64_t boottime)
{
	int64_t job[2], wanted[2];
	char text[256];
	clock_offsets("1", job);
	wanted[0] = job[0] + monotonic;
	wanted[1] = job[1] + boottime;
	/* Nanoseconds are positive, whatever the seconds are. */
	int64_t rest[2];
	for (int i = 0; i < 2; i++) {
		rest[i] = (wanted[i] % SECOND + SECOND) % SECOND;
		wanted[i] = (wanted[i] - rest[i]) / SECOND;
	}
	int length = snprintf(text, sizeof text, "monotonic %lld %lld\nboottime %lld %lld\n", (long long)wanted[0],
			      (long long)rest[0], (long long)wanted[1], (long long)rest[1]);
	int fd = (int)BUILD(open("/proc/self/timens_offsets", O_WRONLY | O_CLOEXEC));
	int error = write(fd, text, (size_t)length) == length ? 0 : errno;
	BUILD(close(fd));
	return error;
}

/* A new time namespace for the children of this process. */
static inline void new_clocks(int64_t monotonic, int64_t boottime)
{
	if (unshare(NEW_TIME) != 0)
		conform_skip("there are no time namespaces here");
	EXPECT("error of setting clocks", set_ahead(monotonic, boottime), 0);
}
#endif
