/*
 * Where datagrams come from that nobody has read yet: clients that are connected, bound to all addresses, of both
 * families, or closed since; servers at one address, at all of them, and connected. An answer reaches whoever asked.
 */
#include "conform.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

struct place {
	struct sockaddr_storage at;
	socklen_t length;
};

static struct place place(const char *ip, int port)
{
	struct place made = { .length = sizeof(struct sockaddr_in) };
	struct sockaddr_in *four = (struct sockaddr_in *)&made.at;
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)&made.at;
	if (inet_pton(AF_INET, ip, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = htons((uint16_t)port);
		return made;
	}
	made.length = sizeof *six;
	six->sin6_family = AF_INET6;
	six->sin6_port = htons((uint16_t)port);
	if (inet_pton(AF_INET6, ip, &six->sin6_addr) != 1)
		conform_fail("%s is no address", ip);
	return made;
}

static int port_of(int fd)
{
	struct place own = { .length = sizeof own.at };
	BUILD(getsockname(fd, (struct sockaddr *)&own.at, &own.length));
	return ntohs(((struct sockaddr_in *)&own.at)->sin_port);
}

/* A socket at an address, with a port of the kernel's choice. */
static int at(const char *ip)
{
	struct place own = place(ip, 0);
	int fd = (int)BUILD(socket(own.at.ss_family, SOCK_DGRAM, 0));
	BUILD(conform_bind(fd, (struct sockaddr *)&own.at, own.length));
	return fd;
}

static void say(int from, const char *ip, int port, const char *what)
{
	struct place to = place(ip, port);
	EXPECT("sent", sendto(from, what, strlen(what), 0, (struct sockaddr *)&to.at, to.length), strlen(what));
}

/* The next datagram of a server is this one, from there; answers with `answer` unless NULL. */
static void hears(int server, const char *what, const char *ip, int port, const char *answer)
{
	char text[64] = "", shown[INET6_ADDRSTRLEN] = "";
	struct place from = { .length = sizeof from.at };
	ssize_t length = recvfrom(server, text, sizeof text - 1, MSG_DONTWAIT, (struct sockaddr *)&from.at, &from.length);
	if (length < 0)
		conform_fail("%s has not come: %s", what, strerror(errno));
	EXPECT_TEXT("what was sent", text, what);
	if (from.at.ss_family == AF_INET)
		inet_ntop(AF_INET, &((struct sockaddr_in *)&from.at)->sin_addr, shown, sizeof shown);
	else
		inet_ntop(AF_INET6, &((struct sockaddr_in6 *)&from.at)->sin6_addr, shown, sizeof shown);
	EXPECT_TEXT(what, shown, ip);
	EXPECT(what, ntohs(((struct sockaddr_in *)&from.at)->sin_port), port);
	if (answer)
		EXPECT("answered", sendto(server, answer, strlen(answer), 0, (struct sockaddr *)&from.at, from.length),
		       strlen(answer));
}

static void gets(int client, const char *what)
{
	char text[64] = "";
	if (recv(client, text, sizeof text - 1, MSG_DONTWAIT) < 0)
		conform_fail("no answer %s: %s", what, strerror(errno));
	EXPECT_TEXT("the answer", text, what);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int one = at("127.0.0.1"), all = at("0.0.0.0"), both = at("::"), six = at("::1");
	int connected = at("127.0.0.1"), wildcard = at("0.0.0.0"), second = at("127.0.0.2"), client6 = at("::1");
	int closed = at("127.0.0.1"), closed_port = port_of(closed);
	struct place server = place("127.0.0.1", port_of(one));
	BUILD(connect(connected, (struct sockaddr *)&server.at, server.length));
	EXPECT("sent", send(connected, "connected", 9, 0), 9);
	say(wildcard, "127.0.0.1", port_of(one), "wildcard");
	say(second, "127.0.0.1", port_of(one), "second");
	say(closed, "127.0.0.1", port_of(one), "closed");
	say(one, "127.0.0.1", port_of(one), "itself");
	int dual = at("::");
	say(dual, "::ffff:127.0.0.1", port_of(one), "of both families");
	say(second, "127.0.0.2", port_of(all), "second");
	say(wildcard, "127.0.0.1", port_of(all), "wildcard");
	say(connected, "127.0.0.1", port_of(both), "mapped");
	say(client6, "::1", port_of(both), "six");
	say(client6, "::1", port_of(six), "six");
	/* One that is connected, and has heard of its peer before and after. */
	int peer = at("127.0.0.1"), its = at("127.0.0.1");
	say(its, "127.0.0.1", port_of(peer), "before");
	struct place of_its = place("127.0.0.1", port_of(its));
	BUILD(connect(peer, (struct sockaddr *)&of_its.at, of_its.length));
	say(its, "127.0.0.1", port_of(peer), "after");
	close(closed);
	conform_ready();
	conform_wait();

	hears(one, "connected", "127.0.0.1", port_of(connected), "to connected");
	hears(one, "wildcard", "127.0.0.1", port_of(wildcard), "to wildcard");
	hears(one, "second", "127.0.0.2", port_of(second), "to second");
	hears(one, "closed", "127.0.0.1", closed_port, NULL);
	hears(one, "itself", "127.0.0.1", port_of(one), NULL);
	hears(one, "of both families", "127.0.0.1", port_of(dual), "to both");
	gets(dual, "to both");
	gets(connected, "to connected");
	gets(wildcard, "to wildcard");
	gets(second, "to second");
	hears(all, "second", "127.0.0.2", port_of(second), "once more");
	hears(all, "wildcard", "127.0.0.1", port_of(wildcard), "once more");
	gets(second, "once more");
	gets(wildcard, "once more");
	hears(both, "mapped", "::ffff:127.0.0.1", port_of(connected), NULL);
	hears(both, "six", "::1", port_of(client6), "to six");
	gets(client6, "to six");
	hears(six, "six", "::1", port_of(client6), "again");
	gets(client6, "again");
	hears(peer, "before", "127.0.0.1", port_of(its), NULL);
	hears(peer, "after", "127.0.0.1", port_of(its), NULL);
	char none;
	EXPECT_ERROR("no more", recv(one, &none, 1, MSG_DONTWAIT), EAGAIN);
	EXPECT_ERROR("no more", recv(all, &none, 1, MSG_DONTWAIT), EAGAIN);
	EXPECT_ERROR("no more", recv(both, &none, 1, MSG_DONTWAIT), EAGAIN);
	EXPECT_ERROR("no more", recv(peer, &none, 1, MSG_DONTWAIT), EAGAIN);
	conform_pass();
}
