/*
 * Servers that have the same port on several nodes: listener serve PORT
 * and who asks them: listener ask PORT ROUNDS PACE HOST...
 * A server answers each connection with its host's name. In every round each host is asked by a new connection, and
 * must be the one that answers. At the end the servers are told to end.
 */
#include "split.h"
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

/* After SYNS more requests, 1 + 2 + 4 s, a connection to nobody fails; by itself the kernel would take two minutes. */
enum { NAME = 64, PATIENCE_MS = 20000, SYNS = 2 };

static void serve(int port)
{
	int server = (int)MUST(socket(AF_INET, SOCK_STREAM, 0)), on = 1;
	MUST(setsockopt(server, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	MUST(bind(server, (struct sockaddr *)&address, sizeof address));
	MUST(listen(server, 16));
	for (char order = 'n'; order != 'e';) {
		int fd = (int)MUST(accept(server, NULL, NULL));
		char name[NAME] = "";
		MUST(gethostname(name, sizeof name - 1));
		write_all(fd, name, sizeof name);
		if (!read_all(fd, &order, 1))
			fail("the asker said nothing");
		close(fd);
	}
}

static int reach(const struct addrinfo *host, bool patient)
{
	for (int waited = 0;; waited += 20) {
		int fd = (int)MUST(socket(AF_INET, SOCK_STREAM, 0)), syns = SYNS;
		MUST(setsockopt(fd, IPPROTO_TCP, TCP_SYNCNT, &syns, sizeof syns));
		if (connect(fd, host->ai_addr, host->ai_addrlen) == 0)
			return fd;
		/* Once it has answered it is to answer always. */
		if (!patient || waited > PATIENCE_MS)
			fail("connect: %s", strerror(errno));
		close(fd);
		pace(20000);
	}
}

static void ask(char **hosts, int count, const char *port, long rounds, long each)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM };
	struct addrinfo **found = calloc((size_t)count, sizeof *found);
	for (int i = 0; i < count; i++)
		if (getaddrinfo(hosts[i], port, &hints, &found[i]))
			fail("no address of %s", hosts[i]);
	for (long round = 0; round < rounds; round++) {
		for (int i = 0; i < count; i++) {
			int fd = reach(found[i], round == 0);
			char name[NAME];
			if (!read_all(fd, name, sizeof name) || strncmp(name, hosts[i], NAME))
				fail("round %ld: %.*s answered for %s", round, NAME, name, hosts[i]);
			write_all(fd, round + 1 == rounds ? "e" : "n", 1);
			close(fd);
		}
		if (round == 0)
			say("started");
		pace(each);
	}
	say("right");
}

int main(int argc, char **argv)
{
	split_name = "listener";
	if (argc == 3 && !strcmp(argv[1], "serve"))
		serve((int)number(argv[2]));
	else if (argc > 5 && !strcmp(argv[1], "ask"))
		ask(argv + 5, argc - 5, argv[2], number(argv[3]), number(argv[4]));
	else
		fail("usage: listener serve PORT | ask PORT ROUNDS PACE HOST...");
	return 0;
}
