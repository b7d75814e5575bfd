/* Empty messages among others in the queues of Unix datagram and seqpacket sockets, also last before the end. */
#include "conform.h"
#include <sys/socket.h>
#include <sys/un.h>

/* Sent one after the other; a dot is an empty one. */
static const char sent[] = ".a..b.c...";

static void send_messages(int fd)
{
	for (const char *each = sent; *each; each++)
		EXPECT("a message", send(fd, each, *each == '.' ? 0 : 1, 0), *each == '.' ? 0 : 1);
}

static void expect_messages(const char *what, int fd, const char *messages)
{
	char name[64], got = 0;
	for (int place = 0; messages[place]; place++) {
		snprintf(name, sizeof name, "%s, message %d", what, place);
		EXPECT(name, recv(fd, &got, 1, MSG_DONTWAIT), messages[place] != '.');
		if (messages[place] != '.')
			EXPECT(name, got, messages[place]);
	}
}

static void expect_no_more(const char *what, int fd)
{
	char got;
	EXPECT_ERROR(what, recv(fd, &got, 1, MSG_DONTWAIT), EAGAIN);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int pair[2], packets[2], ended[2], at = (int)BUILD(socket(AF_UNIX, SOCK_DGRAM, 0));
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	snprintf(address.sun_path, sizeof address.sun_path, "%s", conform_path("s"));
	BUILD(bind(at, (struct sockaddr *)&address, sizeof address));
	int sender = (int)BUILD(socket(AF_UNIX, SOCK_DGRAM, 0));
	BUILD(connect(sender, (struct sockaddr *)&address, sizeof address));
	send_messages(sender);
	BUILD(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	send_messages(pair[0]);
	BUILD(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets));
	send_messages(packets[0]);
	BUILD(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ended));
	send_messages(ended[0]);
	BUILD(close(ended[0]));
	conform_ready();
	conform_wait();
	expect_messages("datagrams at a path", at, sent);
	expect_no_more("datagrams at a path", at);
	expect_messages("datagrams of a pair", pair[1], sent);
	expect_no_more("datagrams of a pair", pair[1]);
	expect_messages("packets", packets[1], sent);
	expect_no_more("packets", packets[1]);
	expect_messages("packets before the end", ended[1], sent);
	EXPECT("the end", recv(ended[1], &(char){ 0 }, 1, MSG_DONTWAIT), 0);
	conform_pass();
}
