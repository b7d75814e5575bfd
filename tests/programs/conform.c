/* See conform.h. */
#include "conform.h"

#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/random.h>
#include <sys/socket.h>

enum {
	POLL_MS = 5,
	/* A program whose runner died ends by itself after this many polls. */
	MOST_POLLS = 120 * 1000 / POLL_MS,
	READ_LIMIT_MS = 10 * 1000,
};

static const char *directory;
static long poll_ms = POLL_MS;

void conform_start(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: %s DIR\n", argv[0]);
		exit(2);
	}
	directory = strdup(argv[1]);
	const char *slower = getenv("CONFORM_POLL_MS");
	if (slower && atol(slower) > POLL_MS)
		poll_ms = atol(slower);
	setvbuf(stderr, NULL, _IONBF, 0);
}

const char *conform_path(const char *name)
{
	char *path;
	if (asprintf(&path, "%s/%s", directory, name) < 0)
		abort();
	return path;
}

const char *conform_unique(void)
{
	char *name = strdup(*directory == '/' ? directory + 1 : directory);
	if (!name)
		abort();
	for (char *c = name; *c; c++)
		if (*c == '/')
			*c = '-';
	return name;
}

static void put_file(const char *name, const char *text)
{
	int fd = open(conform_path(name), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	if (fd < 0)
		return; /* the first failure is the one to tell */
	if (write(fd, text, strlen(text)) < 0)
		perror(name);
	close(fd);
}

static bool exists(const char *name)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", directory, name);
	return access(path, F_OK) == 0;
}

void conform_ready(void)
{
	put_file("ready", "");
}

bool conform_gone(void)
{
	return exists("go");
}

void conform_sleep_ms(long milliseconds)
{
	struct timespec left = { milliseconds / 1000, milliseconds % 1000 * 1000000 };
	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		continue;
}

void conform_wait_with(void (*tick)(void *), void *argument)
{
	for (int polls = 0; !conform_gone(); polls++) {
		if (polls == MOST_POLLS)
			conform_fail("the word to go on never came");
		if (tick)
			tick(argument);
		conform_sleep_ms(poll_ms);
	}
}

/* VmPeak in KiB: from the first call on, a mapping that somebody makes in this process for a moment shows there. */
static long peak(void)
{
	static char status[16 * 1024];
	static void *most;
	/* More than what the program's start has mapped and unmapped again. */
	if (!most)
		most = conform_map(1024 * 1024, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	conform_read_file("/proc/self/status", status, sizeof status);
	const char *line = strstr(status, "VmPeak:");
	if (!line)
		conform_fail("/proc/self/status has no VmPeak");
	return strtol(line + 7, NULL, 10);
}

/* The most that was ever mapped when a refusal was announced, in KiB. */
static long peak_before;

/*
 * A refusal is decided before the first call that a checkpoint makes in a process of the job. For these it maps 256 KiB;
 * the heap may have grown by less.
 */
static void check_untouched(void)
{
	if (peak_before)
		EXPECT_BETWEEN("KiB that were ever mapped: nothing was made here for a refused checkpoint", peak(),
			       peak_before, peak_before + 200);
}

void conform_wait(void)
{
	conform_wait_with(NULL, NULL);
	check_untouched();
}

void conform_mark(const char *name)
{
	put_file(name, "");
}

void conform_await(const char *name)
{
	for (int polls = 0; !exists(name); polls++) {
		if (polls == READ_LIMIT_MS / POLL_MS)
			conform_fail("a relative never got as far as \"%s\"", name);
		conform_sleep_ms(POLL_MS);
	}
}

void conform_expect_refusal(pid_t process, int descriptor)
{
	char text[64];
	snprintf(text, sizeof text, "%d", (int)process);
	put_file("process", text);
	if (descriptor >= 0) {
		snprintf(text, sizeof text, "%d", descriptor);
		put_file("descriptor", text);
	}
	peak_before = peak();
}

void conform_expect_asked_refusal(pid_t process)
{
	conform_expect_refusal(process, -1);
	peak_before = 0;
}

pid_t conform_spawn(void (*body)(void *), void *argument)
{
	pid_t child = BUILD(fork());
	if (child == 0) {
		body(argument);
		_exit(0);
	}
	return child;
}

void conform_join(pid_t child)
{
	int status = 0;
	pid_t reaped;
	do
		reaped = waitpid(child, &status, 0);
	while (reaped < 0 && errno == EINTR);
	EXPECT("waitpid of a child", reaped, child);
	EXPECT("status of a child", status, 0);
}

static uint64_t pattern(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

void conform_fill(void *memory, size_t size, unsigned seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
	for (size_t at = 0; at < size; at += 8) {
		uint64_t word = pattern(&state);
		memcpy((char *)memory + at, &word, size - at < 8 ? size - at : 8);
	}
}

void conform_verify(const char *what, const void *memory, size_t size, unsigned seed)
{
	uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
	for (size_t at = 0; at < size; at += 8) {
		uint64_t word = pattern(&state);
		if (memcmp((const char *)memory + at, &word, size - at < 8 ? size - at : 8) != 0)
			conform_fail("%s: contents differ at byte %zu of %zu", what, at, size);
	}
}

void *conform_map(size_t size, int protection, int flags, int fd)
{
	void *memory = mmap(NULL, size, protection, flags | (fd < 0 ? MAP_ANONYMOUS : 0), fd, 0);
	if (memory == MAP_FAILED)
		conform_fail("mmap of %zu bytes: %s", size, strerror(errno));
	return memory;
}

static sigjmp_buf fault_return;

static void on_fault(int signal)
{
	siglongjmp(fault_return, signal);
}

bool conform_faults(volatile char *byte, bool writing)
{
	struct sigaction action = { .sa_handler = on_fault }, segv, bus;
	BUILD(sigaction(SIGSEGV, &action, &segv));
	BUILD(sigaction(SIGBUS, &action, &bus));
	bool faulted = sigsetjmp(fault_return, 1) != 0;
	if (!faulted) {
		char value = *byte;
		if (writing)
			*byte = value;
	}
	BUILD(sigaction(SIGSEGV, &segv, NULL));
	BUILD(sigaction(SIGBUS, &bus, NULL));
	return faulted;
}

size_t conform_read_file(const char *path, char *buffer, size_t size)
{
	int fd = BUILD(open(path, O_RDONLY | O_CLOEXEC));
	size_t length = 0;
	for (;;) {
		ssize_t got = BUILD(read(fd, buffer + length, size - length));
		length += (size_t)got;
		if (length == size)
			conform_fail("%s is longer than %zu bytes", path, size);
		if (got == 0)
			break;
	}
	close(fd);
	buffer[length] = 0;
	return length;
}

char conform_state(pid_t process)
{
	char path[64], stat[1024];
	snprintf(path, sizeof path, "/proc/%d/stat", process);
	conform_read_file(path, stat, sizeof stat);
	return strrchr(stat, ')')[2];
}

/* Below the ephemeral ports (ip_local_port_range(7): 32768 to 60999), where few services are. */
enum { FIRST_PORT = 20000, LAST_PORT = 32000, PORT_TRIES = 1000 };

/* Whether nobody has this address, not even with SO_REUSEADDR or SO_REUSEPORT. */
static bool is_free(int fd, const struct sockaddr *address, socklen_t length)
{
	int type = 0;
	socklen_t size = sizeof type;
	BUILD(getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size));
	int probe = (int)BUILD(socket(address->sa_family, type | SOCK_CLOEXEC, 0)), on = 1;
	/* An address that is not this machine's is looked at, too. */
	(void)!setsockopt(probe, IPPROTO_IP, IP_FREEBIND, &on, sizeof on);
	int failed = bind(probe, address, length) == 0 ? 0 : errno;
	BUILD(close(probe));
	return failed != EADDRINUSE;
}

void conform_lease(int fd, int kind)
{
	int held = fcntl(fd, F_SETLEASE, kind);
	if (held != 0 && errno == EINVAL)
		conform_skip("this file system has no leases");
	BUILD(held);
}

int conform_bind(int fd, const struct sockaddr *address, unsigned length)
{
	static unsigned long long state;
	struct sockaddr_storage at;
	memcpy(&at, address, length);
	/* The port is at one place in both families. */
	in_port_t *port = &((struct sockaddr_in *)&at)->sin_port;
	if (*port != 0)
		return bind(fd, address, length);
	if (state == 0)
		BUILD(getrandom(&state, sizeof state, 0));
	for (int i = 0; i < PORT_TRIES; i++) {
		state = state * 6364136223846793005ULL + 1442695040888963407ULL;
		*port = htons(FIRST_PORT + (state >> 33) % (LAST_PORT - FIRST_PORT));
		if (!is_free(fd, (struct sockaddr *)&at, length))
			continue;
		int answer = bind(fd, (struct sockaddr *)&at, length);
		if (answer == 0 || errno != EADDRINUSE)
			return answer;
	}
	conform_fail("no port is free between %d and %d", FIRST_PORT, LAST_PORT);
}

void conform_write_all(int fd, const void *bytes, size_t size)
{
	while (size) {
		ssize_t done = write(fd, bytes, size);
		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			conform_fail("write to descriptor %d: %s", fd, strerror(errno));
		bytes = (const char *)bytes + done;
		size -= (size_t)done;
	}
}

static bool readable(int fd, int limit_ms)
{
	struct pollfd entry = { .fd = fd, .events = POLLIN };
	int found;
	do
		found = poll(&entry, 1, limit_ms);
	while (found < 0 && errno == EINTR);
	return found == 1;
}

void conform_read_all(int fd, void *bytes, size_t size)
{
	while (size) {
		if (!readable(fd, READ_LIMIT_MS))
			conform_fail("descriptor %d: %zu bytes never came", fd, size);
		ssize_t done = read(fd, bytes, size);
		if (done < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (done < 0)
			conform_fail("read of descriptor %d: %s", fd, strerror(errno));
		if (done == 0)
			conform_fail("descriptor %d ended %zu bytes too early", fd, size);
		bytes = (char *)bytes + done;
		size -= (size_t)done;
	}
}

void conform_expect_bytes(const char *what, int fd, const char *bytes)
{
	char found[4096];
	size_t length = strlen(bytes);
	if (length >= sizeof found)
		conform_fail("%s: test text too long", what);
	conform_read_all(fd, found, length);
	found[length] = 0;
	EXPECT_TEXT(what, found, bytes);
}

void conform_expect_eof(const char *what, int fd)
{
	char byte;
	if (!readable(fd, READ_LIMIT_MS))
		conform_fail("%s: the end of file never came", what);
	EXPECT(what, read(fd, &byte, 1), 0);
}

void conform_expect_nothing(const char *what, int fd)
{
	if (readable(fd, 0))
		conform_fail("%s: descriptor %d is readable, expected nothing to read", what, fd);
}

int64_t conform_clock(clockid_t clock)
{
	struct timespec now;
	BUILD(clock_gettime(clock, &now));
	return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void conform_pass(void)
{
	if (exists("failed"))
		_exit(1);
	put_file("ok", "");
	_exit(0);
}

void conform_skip(const char *why)
{
	put_file("skipped", why);
	_exit(0);
}

void conform_fail(const char *format, ...)
{
	char message[2048];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(message, sizeof message, format, arguments);
	va_end(arguments);
	put_file("failed", message);
	fprintf(stderr, "FAIL: %s\n", message);
	_exit(1);
}

long conform_build(long result, const char *call, const char *file, int line)
{
	if (result == -1)
		conform_fail("%s:%d: %s: %s", file, line, call, strerror(errno));
	return result;
}

void conform_build0(int error, const char *call, const char *file, int line)
{
	if (error != 0)
		conform_fail("%s:%d: %s: %s", file, line, call, strerror(error));
}

void conform_expect(const char *what, long long found, long long expected, const char *file, int line)
{
	if (found != expected)
		conform_fail("%s, expected %lld, found %lld (%s:%d)", what, expected, found, file, line);
}

void conform_expect_between(const char *what, long long found, long long least, long long most, const char *file,
			    int line)
{
	if (found < least || found > most)
		conform_fail("%s, expected %lld to %lld, found %lld (%s:%d)", what, least, most, found, file,
			     line);
}

void conform_expect_text(const char *what, const char *found, const char *expected, const char *file, int line)
{
	if (strcmp(found, expected) != 0)
		conform_fail("%s, expected \"%s\", found \"%s\" (%s:%d)", what, expected, found, file, line);
}
