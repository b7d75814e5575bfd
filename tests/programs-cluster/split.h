/*
 * What the programs share that are split over machines while they run.
 *
 * Each is run as `PROGRAM ... ROUNDS PACE`: it works ROUNDS rounds, each at least PACE microseconds long, and
 * checks in every one that nothing was lost, repeated or changed. It says "NAME: started" first and "NAME: right"
 * last, both on standard output; a failure is one line on standard error, and exit status 1.
 */
#ifndef SPLIT_H
#define SPLIT_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *split_name = "?";

static __attribute__((noreturn, format(printf, 1, 2), unused)) void fail(const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	fprintf(stderr, "%s: process %d: ", split_name, (int)getpid());
	vfprintf(stderr, format, arguments);
	fprintf(stderr, "\n");
	va_end(arguments);
	_exit(1);
}

/* A call that must not fail. */
#define MUST(call) must((long)(call), #call)
static __attribute__((unused)) long must(long result, const char *call)
{
	if (result < 0)
		fail("%s: %s", call, strerror(errno));
	return result;
}

static __attribute__((unused)) void say(const char *what)
{
	printf("%s: %s\n", split_name, what);
	fflush(stdout);
}

static __attribute__((unused)) long number(const char *text)
{
	char *end;
	long value = strtol(text, &end, 10);
	if (end == text || *end || value < 0)
		fail("\"%s\" is no number", text);
	return value;
}

/* The next of a sequence that cannot be guessed from its place. */
static __attribute__((unused)) uint64_t next_word(uint64_t word)
{
	return word * 6364136223846793005u + 1442695040888963407u;
}

static __attribute__((unused)) void pace(long microseconds)
{
	struct timespec rest = { microseconds / 1000000, microseconds % 1000000 * 1000 };
	while (nanosleep(&rest, &rest) < 0 && errno == EINTR)
		;
}

static __attribute__((unused)) void write_all(int fd, const void *bytes, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t written = write(fd, (const char *)bytes + done, size - done);
		if (written < 0 && errno == EINTR)
			continue;
		done += (size_t)must(written, "write");
	}
}

/* Reads all of it; false at the end of the stream. */
static __attribute__((unused)) bool read_all(int fd, void *bytes, size_t size)
{
	for (size_t done = 0; done < size;) {
		ssize_t got = read(fd, (char *)bytes + done, size - done);
		if (got < 0 && errno == EINTR)
			continue;
		if (must(got, "read") == 0) {
			if (done > 0)
				fail("a stream ends in the middle");
			return false;
		}
		done += (size_t)got;
	}
	return true;
}

/* Waits for a child, which must exit with 0. */
static __attribute__((unused)) void join(pid_t child)
{
	int status;
	MUST(waitpid(child, &status, 0));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		fail("child %d ended with %#x", (int)child, status);
}

#endif
