/*
 * Ends with 0 when it loses its daemon, as prterun of Open MPI 5 does: careless launch HOST PORT NODE ROUNDS PACE
 * It starts a daemon on NODE by a remote shell, which connects to HOST:PORT and counts the rounds. Only the daemon's last
 * word lets it say "careless: right".
 */
#include "split.h"
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

enum { PATIENCE_MS = 20000 };

static int listener(int port)
{
	int fd = (int)MUST(socket(AF_INET, SOCK_STREAM, 0));
	int on = 1;
	MUST(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	MUST(bind(fd, (struct sockaddr *)&address, sizeof address));
	MUST(listen(fd, 1));
	return fd;
}

static int connected(const char *host, const char *port)
{
	struct addrinfo hints = { .ai_family = AF_INET, .ai_socktype = SOCK_STREAM }, *found;
	int error = getaddrinfo(host, port, &hints, &found);
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
	fail("%s:%s never answered", host, port);
}

static int count(const char *host, const char *port, uint64_t rounds, long pause)
{
	int fd = connected(host, port);
	for (uint64_t round = 1; round <= rounds; round++) {
		write_all(fd, &round, sizeof round);
		pace(pause);
	}
	return 0;
}

int main(int argc, char **argv)
{
	split_name = "careless";
	if (argc != 7)
		fail("usage: careless launch HOST PORT NODE ROUNDS PACE");
	uint64_t rounds = (uint64_t)number(argv[5]);
	if (strcmp(argv[1], "count") == 0)
		return count(argv[2], argv[3], rounds, number(argv[6]));
	int server = listener((int)number(argv[3]));
	pid_t shell = (pid_t)MUST(fork());
	if (shell == 0) {
		MUST(execlp("ckptd", "ckptd", "rsh", argv[4], "careless", "count", argv[2], argv[3], argv[4], argv[5],
			    argv[6], NULL));
	}
	int daemon = (int)MUST(accept(server, NULL, NULL));
	say("started");
	for (uint64_t round = 1; round <= rounds; round++) {
		uint64_t told = 0;
		if (recv(daemon, &told, sizeof told, MSG_WAITALL) != sizeof told)
			return 0;
		if (told != round)
			fail("round %lu instead of %lu", (unsigned long)told, (unsigned long)round);
	}
	join(shell);
	say("right");
	return 0;
}
