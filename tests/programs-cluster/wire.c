/*
 * Measures, and shows, what goes from machine to machine:
 *
 *   wire serve PORT...                           answers by TCP and UDP
 *   wire flood HOST PORT SECONDS                 sends by TCP as much as gets through, and prints MB in a second
 *   wire ask tcp|udp HOST PORT COUNT BYTES WORD  has messages full of a word sent back, and prints microseconds
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 1 << 18, MOST = 1 << 16 };
static char buffer[CHUNK];

static void must(int holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int whole(int fd, char *bytes, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t got = read(fd, bytes + done, length - done);
		if (got <= 0)
			return 0;
		done += (size_t)got;
	}
	return 1;
}

static int send_all(int fd, const char *bytes, size_t length)
{
	for (size_t done = 0; done < length;) {
		ssize_t sent = write(fd, bytes + done, length - done);
		if (sent <= 0)
			return 0;
		done += (size_t)sent;
	}
	return 1;
}

static void at_once(int fd)
{
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* The first byte says what is wanted: e, everything back; f, how much it was. */
static void answer(int fd)
{
	char what;
	uint64_t count = 0;
	ssize_t got;
	at_once(fd);
	must(whole(fd, &what, 1), "read");
	while ((got = read(fd, buffer, CHUNK)) > 0) {
		count += (uint64_t)got;
		if (what == 'e' && !send_all(fd, buffer, (size_t)got))
			break;
	}
	if (what == 'f')
		send_all(fd, (char *)&count, sizeof count);
	exit(0);
}

static int bound(int type, const char *port)
{
	struct sockaddr_in6 any = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)atoi(port)) };
	int one = 1, fd = socket(AF_INET6, type, 0);
	must(fd >= 0, "socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	must(bind(fd, (struct sockaddr *)&any, sizeof any) == 0, "bind");
	return fd;
}

static void serve_tcp(const char *port)
{
	int fd = bound(SOCK_STREAM, port);
	must(listen(fd, 16) == 0, "listen");
	if (fork() == 0) {
		for (;;) {
			int peer = accept(fd, NULL, NULL);
			if (peer >= 0 && fork() == 0)
				answer(peer);
			close(peer);
		}
	}
}

static void serve_udp(const char *port)
{
	int fd = bound(SOCK_DGRAM, port);
	if (fork() == 0) {
		for (;;) {
			struct sockaddr_in6 from;
			socklen_t length = sizeof from;
			ssize_t got = recvfrom(fd, buffer, CHUNK, 0, (struct sockaddr *)&from, &length);
			if (got >= 0)
				sendto(fd, buffer, (size_t)got, 0, (struct sockaddr *)&from, length);
		}
	}
}

static int connected(int type, const char *host, const char *port)
{
	struct addrinfo wanted = { .ai_socktype = type }, *found;
	must(getaddrinfo(host, port, &wanted, &found) == 0, "getaddrinfo");
	int fd = socket(found->ai_family, type, 0);
	must(fd >= 0 && connect(fd, found->ai_addr, found->ai_addrlen) == 0, "connect");
	if (type == SOCK_STREAM)
		at_once(fd);
	struct timeval limit = { .tv_sec = 10 };
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
	return fd;
}

static void flood(const char *host, const char *port, double seconds)
{
	int fd = connected(SOCK_STREAM, host, port);
	uint64_t count;
	double began = now();
	must(send_all(fd, "f", 1), "write");
	while (now() - began < seconds)
		must(send_all(fd, buffer, CHUNK), "write");
	shutdown(fd, SHUT_WR);
	must(whole(fd, (char *)&count, sizeof count), "read");
	printf("%.1f\n", (double)count / 1e6 / (now() - began));
}

static int by_size(const void *one, const void *other)
{
	double difference = *(const double *)one - *(const double *)other;
	return (difference > 0) - (difference < 0);
}

static void ask(int type, const char *host, const char *port, size_t count, size_t bytes, const char *word)
{
	static char sent[MOST], got[MOST];
	double *took = calloc(count, sizeof *took);
	must(bytes <= MOST && took, "too much");
	for (size_t i = 0; i < bytes; i++)
		sent[i] = word[i % strlen(word)];
	int fd = connected(type, host, port);
	if (type == SOCK_STREAM)
		must(send_all(fd, "e", 1), "write");
	for (size_t i = 0; i < count; i++) {
		double began = now();
		must(send_all(fd, sent, bytes), "write");
		must(whole(fd, got, bytes) && memcmp(sent, got, bytes) == 0, "it did not come back");
		took[i] = (now() - began) * 1e6;
	}
	qsort(took, count, sizeof *took, by_size);
	printf("%.1f\n", took[count / 2]);
}

int main(int argc, char **argv)
{
	signal(SIGCHLD, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	if (argc >= 3 && strcmp(argv[1], "serve") == 0) {
		for (int i = 2; i < argc; i++) {
			serve_tcp(argv[i]);
			serve_udp(argv[i]);
		}
		printf("serving\n");
		fflush(stdout);
		for (;;)
			pause();
	} else if (argc == 5 && strcmp(argv[1], "flood") == 0) {
		flood(argv[2], argv[3], atof(argv[4]));
	} else if (argc == 8 && strcmp(argv[1], "ask") == 0) {
		int type = strcmp(argv[2], "tcp") == 0 ? SOCK_STREAM : SOCK_DGRAM;
		ask(type, argv[3], argv[4], strtoul(argv[5], NULL, 10), strtoul(argv[6], NULL, 10), argv[7]);
	} else {
		fprintf(stderr, "usage: wire serve|flood|ask ...\n");
		return 2;
	}
	return 0;
}
