/*
 * Where queued UDP datagrams came from: a socket of the job, one that is closed, one with a port of the kernel's choice, with both
 * families; and the refusal that a connected socket is told of next.
 */
#include "conform.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

static int made(int family, union address *name, bool bound)
{
	socklen_t length = sizeof *name;
	int fd = (int)BUILD(socket(family, SOCK_DGRAM, 0));
	memset(name, 0, sizeof *name);
	name->any.sa_family = (sa_family_t)family;
	if (family == AF_INET)
		name->v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	else
		name->v6.sin6_addr = in6addr_loopback;
	if (bound)
		BUILD(conform_bind(fd, &name->any, family == AF_INET ? sizeof name->v4 : sizeof name->v6));
	BUILD(getsockname(fd, &name->any, &length));
	return fd;
}

static in_port_t port(const union address *name)
{
	return ntohs(name->any.sa_family == AF_INET ? name->v4.sin_port : name->v6.sin6_port);
}

static void send_to(int fd, const char *text, const union address *to)
{
	socklen_t length = to->any.sa_family == AF_INET ? sizeof to->v4 : sizeof to->v6;
	BUILD(sendto(fd, text, strlen(text), 0, &to->any, length));
}

static void expect(int fd, const char *text, in_port_t from)
{
	char bytes[32] = "";
	union address sender;
	socklen_t length = sizeof sender;
	BUILD(recvfrom(fd, bytes, sizeof bytes - 1, MSG_DONTWAIT, &sender.any, &length));
	EXPECT_TEXT("datagram", bytes, text);
	EXPECT("port of its sender", port(&sender), from);
	if (sender.any.sa_family == AF_INET)
		EXPECT("address of its sender", ntohl(sender.v4.sin_addr.s_addr), INADDR_LOOPBACK);
	else
		EXPECT("address of its sender", IN6_IS_ADDR_LOOPBACK(&sender.v6.sin6_addr), 1);
}

int main(int argc, char **argv)
{
	static const int families[2] = { AF_INET, AF_INET6 };
	int receivers[2];
	in_port_t ports[2][3];
	conform_start(argc, argv);
	for (int i = 0; i < 2; i++) {
		union address at, own, closed, chosen;
		socklen_t length = sizeof chosen;
		receivers[i] = made(families[i], &at, true);
		int kept = made(families[i], &own, true), gone = made(families[i], &closed, true);
		int any = made(families[i], &chosen, false);
		send_to(kept, "first", &at);
		send_to(gone, "second", &at);
		send_to(any, "", &at);
		send_to(kept, "last", &at);
		BUILD(close(gone));
		BUILD(getsockname(any, &chosen.any, &length));
		ports[i][0] = port(&own);
		ports[i][1] = port(&closed);
		ports[i][2] = port(&chosen);
	}
	union address closed;
	BUILD(close(made(AF_INET, &closed, true)));
	union address own;
	int client = made(AF_INET, &own, false), error = 0;
	BUILD(connect(client, &closed.any, sizeof closed.v4));
	BUILD(send(client, "anybody?", 8, 0));
	conform_sleep_ms(20);
	conform_ready();
	conform_wait();
	for (int i = 0; i < 2; i++) {
		expect(receivers[i], "first", ports[i][0]);
		expect(receivers[i], "second", ports[i][1]);
		expect(receivers[i], "", ports[i][2]);
		expect(receivers[i], "last", ports[i][0]);
	}
	socklen_t size = sizeof error;
	BUILD(getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &size));
	EXPECT("error that waits", error, ECONNREFUSED);
	BUILD(getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &size));
	EXPECT("error behind it", error, 0);
	conform_pass();
}
