/*
 * A daemon with one child on one node, and a peer of the daemon's on another:
 *   orphan daemon PORT ROUNDS PACE STATUS   listens at PORT, starts a child, shows what that writes
 *   orphan peer PORT ROUNDS PACE HOST       connects to it
 * With 0 ROUNDS they go on until the file of END is there.
 * The child has a terminal (standard output), a pipe (standard error), a TCP connection over the loopback and a
 * Unix socket pair, all of them to the daemon. It and the peer check in every round that nothing comes from the
 * daemon, no end and no error: one that has departed is silent, and so is one that lives. At the end both talk to
 * it, far more than buffers hold (it must have departed by then), and say that they are right; the child exits
 * with STATUS.
 */
#include "split.h"
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pty.h>
#include <sys/socket.h>
#include <termios.h>

enum { PATIENCE_MS = 20000 };

static const char END[] = "/mnt/shared/end";

static int goes_on(long round, long rounds)
{
	return rounds ? round < rounds : access(END, F_OK) != 0;
}

static int listener(in_addr_t where, int port)
{
	int fd = (int)MUST(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
	MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
				       .sin_addr.s_addr = htonl(where) };
	MUST(bind(fd, (struct sockaddr *)&address, sizeof address));
	MUST(listen(fd, 4));
	return fd;
}

static int connected(const char *host, int port)
{
	char service[16];
	snprintf(service, sizeof service, "%d", port);
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	int error = getaddrinfo(host, service, &hints, &found);
	if (error)
		fail("no address of %s: %s", host, gai_strerror(error));
	for (int waited = 0; waited < PATIENCE_MS; waited += 20) {
		int fd = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
		if (connect(fd, found->ai_addr, found->ai_addrlen) == 0) {
			freeaddrinfo(found);
			return fd;
		}
		close(fd);
		pace(20000);
	}
	fail("%s:%d never answered", host, port);
}

static void must_be_silent(int fd, long round)
{
	struct pollfd polled = { .fd = fd, .events = POLLIN };
	if (MUST(poll(&polled, 1, 0)) != 0)
		fail("round %ld: the daemon is heard: %#x", round, (unsigned)polled.revents);
}

/* More than a socket's buffers hold: somebody must take it. */
static void talk(int fd)
{
	char words[64 * 1024];
	memset(words, 'w', sizeof words);
	for (int i = 0; i < 100; i++)
		write_all(fd, words, sizeof words);
}

static void child(int tcp, int pair, long rounds, long microseconds, int status)
{
	pid_t parent = getppid();
	say("started");
	for (long round = 0; goes_on(round, rounds); round++) {
		must_be_silent(tcp, round);
		must_be_silent(pair, round);
		if (getppid() != parent)
			fail("round %ld: the parent is %d, not %d", round, (int)getppid(), (int)parent);
		pace(microseconds);
	}
	talk(tcp);
	talk(pair);
	must_be_silent(tcp, rounds);
	must_be_silent(pair, rounds);
	fprintf(stderr, "%s: right on standard error\n", split_name);
	say("right");
	_exit(status);
}

/* Shows what the child writes, until both ways have ended. */
static void show(int terminal, int errors)
{
	struct pollfd polled[2] = { { .fd = terminal, .events = POLLIN }, { .fd = errors, .events = POLLIN } };
	while (polled[0].fd >= 0 || polled[1].fd >= 0) {
		if (poll(polled, 2, -1) < 0)
			continue;
		for (int i = 0; i < 2; i++) {
			char bytes[4096];
			if (polled[i].fd < 0 || !polled[i].revents)
				continue;
			ssize_t got = read(polled[i].fd, bytes, sizeof bytes);
			if (got > 0)
				write_all(1, bytes, (size_t)got);
			else
				polled[i].fd = -1;
		}
	}
}

static int daemon_process(int port, long rounds, long microseconds, int status)
{
	int outer = listener(INADDR_ANY, port), inner = listener(INADDR_LOOPBACK, port + 1);
	int peer = (int)MUST(accept(outer, NULL, NULL));
	int master, slave, errors[2], pair[2];
	struct termios modes;
	MUST(openpty(&master, &slave, NULL, NULL, NULL));
	MUST(tcgetattr(slave, &modes));
	cfmakeraw(&modes);
	MUST(tcsetattr(slave, TCSANOW, &modes));
	MUST(pipe(errors));
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid_t pid = (pid_t)MUST(fork());
	if (pid == 0) {
		close(peer);
		close(outer);
		close(inner);
		close(master);
		close(errors[0]);
		close(pair[0]);
		MUST(dup2(slave, 1));
		MUST(dup2(errors[1], 2));
		close(slave);
		close(errors[1]);
		child(connected("127.0.0.1", port + 1), pair[1], rounds, microseconds, status);
	}
	close(slave);
	close(errors[1]);
	close(pair[1]);
	MUST(accept(inner, NULL, NULL));
	show(master, errors[0]);
	int ended;
	MUST(waitpid(pid, &ended, 0));
	return WIFEXITED(ended) ? WEXITSTATUS(ended) : 1;
}

int main(int argc, char **argv)
{
	split_name = "orphan";
	if (argc != 6)
		fail("usage: orphan daemon PORT ROUNDS PACE STATUS | orphan peer PORT ROUNDS PACE HOST");
	int port = (int)number(argv[2]);
	long rounds = number(argv[3]), microseconds = number(argv[4]);
	if (strcmp(argv[1], "daemon") == 0)
		return daemon_process(port, rounds, microseconds, (int)number(argv[5]));
	int daemon = connected(argv[5], port);
	for (long round = 0; goes_on(round, rounds); round++) {
		must_be_silent(daemon, round);
		pace(microseconds);
	}
	talk(daemon);
	must_be_silent(daemon, rounds);
	say("peer is right");
	return 0;
}
