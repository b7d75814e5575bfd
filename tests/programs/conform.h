/*
 * What every conformance program shares.
 *
 * A program is run as `PROGRAM DIR`. It builds some state in the kernel, says so (conform_ready), waits for
 * DIR/go (conform_wait), and then checks its own state. It never learns whether it was checkpointed or
 * restarted meanwhile. Success is DIR/ok and exit status 0; a failure is one line in DIR/failed and on standard
 * error, and exit status 1; DIR/skipped says that this machine lacks what the program is about.
 *
 * A comment line ` * conform: WORDS` at the top of a program tells the runner about it; the words are explained
 * in tests/src/programs.rs.
 */
#ifndef CONFORM_H
#define CONFORM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#endif
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The size of a page; programs for machines with larger ones are built with another. conform_start looks. */
#ifndef CONFORM_PAGE
#define CONFORM_PAGE 4096
#endif

/* Takes DIR from the command line; called first. */
void conform_start(int argc, char **argv);

/* The path of NAME in DIR; the buffer is the caller's to keep (never freed, programs are short-lived). */
const char *conform_path(const char *name);

/* A name for this run of this program, for what lives outside of DIR (abstract sockets, /dev/shm). */
const char *conform_unique(void);

/* Tells the runner that the state is built. */
void conform_ready(void);

/* Whether the runner has said go. */
bool conform_gone(void);

/*
 * Waits for go, polling every 5 ms, or every $CONFORM_POLL_MS on a machine that is slow; the second calls `tick` in every
 * round.
 */
void conform_wait(void);
void conform_wait_with(void (*tick)(void *), void *argument);

/*
 * Relatives tell each other how far they are by empty files, so that no kernel object but the one under test
 * is in play.
 */
void conform_mark(const char *name);
void conform_await(const char *name);

/*
 * Leaves a word for the runner that the refusal of a checkpoint must contain (refused/ only). conform_wait then fails if
 * anything was mapped in this process meanwhile: the refusal came too late.
 */
void conform_expect_refusal(pid_t process, int descriptor);

/* The same of a refusal that takes calls in the process. */
void conform_expect_asked_refusal(pid_t process);

/* A child that runs `body` and exits with 0; conform_join waits for it and fails unless it did. */
pid_t conform_spawn(void (*body)(void *), void *argument);
void conform_join(pid_t child);

/* A pseudo-random pattern that depends on the seed, and its check. */
void conform_fill(void *memory, size_t size, unsigned seed);
void conform_verify(const char *what, const void *memory, size_t size, unsigned seed);

/* mmap at an address of the kernel's choice, from offset 0; never fails. Anonymous with descriptor -1. */
void *conform_map(size_t size, int protection, int flags, int fd);

/* Whether touching the byte raises SIGSEGV or SIGBUS. */
bool conform_faults(volatile char *byte, bool writing);

/* Reads a (proc) file whole; returns its length, which must be less than `size`; ends it with a NUL. */
size_t conform_read_file(const char *path, char *buffer, size_t size);

/* The state of a process, such as 'T' (proc_pid_stat(5)). */
char conform_state(pid_t process);

/*
 * bind(2) of an Internet socket. For port 0 one is found that the kernel does not hand out by itself: while the program is
 * away, nobody else comes to have it by chance. It is not shared with another program, whatever the socket's options.
 */
struct sockaddr;
int conform_bind(int fd, const struct sockaddr *address, unsigned length);

/* Takes a lease on a file (F_SETLEASE); skips where its file system has none. */
void conform_lease(int fd, int kind);

/* read and write all of it, or fail. */
void conform_write_all(int fd, const void *bytes, size_t size);
void conform_read_all(int fd, void *bytes, size_t size);

/* The descriptor has exactly these bytes to read and, if `eof`, then its end. */
void conform_expect_bytes(const char *what, int fd, const char *bytes);
void conform_expect_eof(const char *what, int fd);
void conform_expect_nothing(const char *what, int fd);

/* Nanoseconds of a clock; sleep for that many milliseconds, whatever interrupts. */
int64_t conform_clock(clockid_t clock);
void conform_sleep_ms(long milliseconds);

void conform_pass(void) __attribute__((noreturn));
void conform_skip(const char *why) __attribute__((noreturn));
void conform_fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* A call that builds state: -1 ends the program with the call's text and errno. */
#define BUILD(call) conform_build((long)(call), #call, __FILE__, __LINE__)
long conform_build(long result, const char *call, const char *file, int line);

/* pthread functions return their error. */
#define BUILD0(call) conform_build0((call), #call, __FILE__, __LINE__)
void conform_build0(int error, const char *call, const char *file, int line);

#define EXPECT(what, found, expected) \
	conform_expect((what), (long long)(found), (long long)(expected), __FILE__, __LINE__)
void conform_expect(const char *what, long long found, long long expected, const char *file, int line);

#define EXPECT_BETWEEN(what, found, least, most) \
	conform_expect_between((what), (long long)(found), (long long)(least), (long long)(most), __FILE__, __LINE__)
void conform_expect_between(const char *what, long long found, long long least, long long most, const char *file,
			    int line);

#define EXPECT_TEXT(what, found, expected) conform_expect_text((what), (found), (expected), __FILE__, __LINE__)
void conform_expect_text(const char *what, const char *found, const char *expected, const char *file, int line);

/* The call fails with this errno. */
#define EXPECT_ERROR(what, call, error)                                              \
	do {                                                                         \
		errno = 0;                                                           \
		long conform_result_ = (long)(call);                                 \
		int conform_errno_ = errno;                                          \
		conform_expect((what), conform_result_, -1, __FILE__, __LINE__);     \
		conform_expect((what), conform_errno_, (error), __FILE__, __LINE__); \
	} while (0)

#endif
