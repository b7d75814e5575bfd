/*
 * Sockets in a network namespace of a process's own: TCP that listens, is connected with bytes under way, waits to be accepted and
 * is half closed; UDP with datagrams; Unix sockets with abstract names; the same ports and names as in the job's own network; a
 * child in another such network; a socket of the job's own network that is used from inside.
 */
#include "namespaces.h"
#include <arpa/inet.h>
#include <sys/un.h>

enum { PORT = 7311 };

static struct sockaddr_in at(int port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = { htonl(INADDR_LOOPBACK) } };
}

static int listening(int port)
{
	struct sockaddr_in address = at(port);
	int fd = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	BUILD(bind(fd, (struct sockaddr *)&address, sizeof address));
	BUILD(listen(fd, 5));
	return fd;
}

static int connected(int port)
{
	struct sockaddr_in address = at(port);
	int fd = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	BUILD(connect(fd, (struct sockaddr *)&address, sizeof address));
	return fd;
}

static struct sockaddr_un named(const char *name, socklen_t *size)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "%s", name);
	*size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
	return address;
}

static int abstract_listener(const char *name)
{
	socklen_t size;
	struct sockaddr_un address = named(name, &size);
	int fd = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
	BUILD(bind(fd, (struct sockaddr *)&address, size));
	BUILD(listen(fd, 5));
	return fd;
}

static int abstract_client(const char *name)
{
	socklen_t size;
	struct sockaddr_un address = named(name, &size);
	int fd = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
	BUILD(connect(fd, (struct sockaddr *)&address, size));
	return fd;
}

static void expect_text(const char *what, int fd, const char *text)
{
	char found[64] = "";
	BUILD(recv(fd, found, sizeof found - 1, MSG_DONTWAIT));
	EXPECT_TEXT(what, found, text);
}

/* All that a network has, with words of its own. */
struct all {
	int tcp, accepted, client, waiting, half, half_client, udp, sender, abstract, abstract_client, abstract_end;
	int log, logging, later;
};

static struct all make_all(const char *word)
{
	struct all all;
	all.tcp = listening(PORT);
	all.client = connected(PORT);
	all.accepted = (int)BUILD(accept(all.tcp, NULL, NULL));
	BUILD(send(all.client, word, strlen(word), 0));
	BUILD(send(all.accepted, "back", 4, 0));
	all.half_client = connected(PORT);
	all.half = (int)BUILD(accept(all.tcp, NULL, NULL));
	BUILD(send(all.half_client, "last", 4, 0));
	BUILD(shutdown(all.half_client, SHUT_WR));
	all.waiting = connected(PORT);
	BUILD(send(all.waiting, word, strlen(word), 0));
	struct sockaddr_in address = at(PORT);
	all.udp = (int)BUILD(socket(AF_INET, SOCK_DGRAM, 0));
	BUILD(bind(all.udp, (struct sockaddr *)&address, sizeof address));
	all.sender = (int)BUILD(socket(AF_INET, SOCK_DGRAM, 0));
	BUILD(connect(all.sender, (struct sockaddr *)&address, sizeof address));
	BUILD(send(all.sender, word, strlen(word), 0));
	all.abstract = abstract_listener("conform");
	all.abstract_client = abstract_client("conform");
	all.abstract_end = (int)BUILD(accept(all.abstract, NULL, NULL));
	BUILD(send(all.abstract_client, word, strlen(word), 0));
	/* Without names of their own. */
	socklen_t size;
	struct sockaddr_un log = named("log", &size);
	all.log = (int)BUILD(socket(AF_UNIX, SOCK_DGRAM, 0));
	BUILD(bind(all.log, (struct sockaddr *)&log, size));
	all.logging = (int)BUILD(socket(AF_UNIX, SOCK_DGRAM, 0));
	BUILD(connect(all.logging, (struct sockaddr *)&log, size));
	BUILD(send(all.logging, word, strlen(word), 0));
	all.later = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
	return all;
}

static void check_all(struct all all, const char *word)
{
	expect_text("what was under way", all.accepted, word);
	expect_text("what was under way back", all.client, "back");
	expect_text("what came before the end", all.half, "last");
	EXPECT("the end of a half closed connection", recv(all.half, (char[1]){ 0 }, 1, MSG_DONTWAIT), 0);
	BUILD(send(all.half, "still", 5, 0));
	expect_text("what comes to who has shut down", all.half_client, "still");
	int late = (int)BUILD(accept(all.tcp, NULL, NULL));
	expect_text("what was sent before it was accepted", late, word);
	BUILD(close(late));
	expect_text("a datagram", all.udp, word);
	BUILD(send(all.sender, "more", 4, 0));
	expect_text("another one", all.udp, "more");
	expect_text("what an abstract name was sent", all.abstract_end, word);
	int again = connected(PORT), accepted = (int)BUILD(accept(all.tcp, NULL, NULL));
	BUILD(send(again, "new", 3, 0));
	expect_text("a new connection", accepted, "new");
	BUILD(close(again));
	BUILD(close(accepted));
	again = abstract_client("conform");
	accepted = (int)BUILD(accept(all.abstract, NULL, NULL));
	BUILD(send(again, "named", 5, 0));
	expect_text("a new connection to a name", accepted, "named");
	socklen_t size;
	struct sockaddr_un address = named("conform", &size);
	BUILD(connect(all.later, (struct sockaddr *)&address, size));
	int found = (int)BUILD(accept(all.abstract, NULL, NULL));
	BUILD(send(all.later, word, strlen(word), 0));
	expect_text("who was nowhere before", found, word);
	BUILD(close(found));
	expect_text("a datagram to a name", all.log, word);
	BUILD(send(all.logging, "again", 5, 0));
	expect_text("another datagram to it", all.log, "again");
	BUILD(close(again));
	BUILD(close(accepted));
}

static void child(void *unused)
{
	(void)unused;
	BUILD(unshare(CLONE_NEWNET));
	loopback(true);
	struct all all = make_all("another network");
	conform_mark("other");
	conform_wait();
	check_all(all, "another network");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int pair[2];
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	int outside = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
	struct sockaddr_un path = { .sun_family = AF_UNIX };
	snprintf(path.sun_path, sizeof path.sun_path, "%s", conform_path("socket"));
	int outer = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
	BUILD(bind(outer, (struct sockaddr *)&path, sizeof path));
	BUILD(listen(outer, 5));
	become_inside(0, CLONE_NEWNET);
	loopback(true);
	pid_t pid = conform_spawn(child, NULL);
	conform_await("other");
	struct all all = make_all("own network");
	BUILD(send(pair[0], "pair", 4, 0));
	/* By its path, from the network inside to who listens outside. */
	BUILD(connect(outside, (struct sockaddr *)&path, sizeof path));
	int reached = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
	BUILD(connect(reached, (struct sockaddr *)&path, sizeof path));
	int first = (int)BUILD(accept(outer, NULL, NULL)), second = (int)BUILD(accept(outer, NULL, NULL));
	BUILD(send(first, "path", 4, 0));

	conform_ready();
	conform_wait();

	check_all(all, "own network");
	expect_text("a pair of before", pair[1], "pair");
	expect_text("a connection to outside by its path", outside, "path");
	BUILD(send(second, "path too", 8, 0));
	expect_text("another one", reached, "path too");
	EXPECT("device of the network", loopback(false) & IFF_UP, IFF_UP);
	conform_join(pid);
	conform_pass();
}
