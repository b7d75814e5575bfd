/*
 * Urgent bytes (MSG_OOB) of TCP connections: unread and read, with bytes before and behind, or without; read apart from the
 * others and among them (SO_OOBINLINE); with the mark ahead and reached; in both directions; of a peer that has closed; in a
 * connection that nobody has accepted. Nobody is told of one twice (SIGURG).
 */
#include "tcp.h"
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

static volatile sig_atomic_t told;

static void tell(int signal)
{
	(void)signal;
	told++;
}

static void put(int fd, const char *before, char urgent, const char *behind)
{
	conform_write_all(fd, before, strlen(before));
	EXPECT("sent", send(fd, &urgent, 1, MSG_OOB), 1);
	conform_write_all(fd, behind, strlen(behind));
}

/* Waits until everything that was sent is there. */
static void await_arrival(int sender)
{
	int left = 1;
	for (int i = 0; left && i < 1000; i++) {
		BUILD(ioctl(sender, SIOCOUTQ, &left));
		conform_sleep_ms(1);
	}
	EXPECT("bytes that have not arrived", left, 0);
}

static void expect(const char *what, int fd, const char *bytes)
{
	char found[64] = "";
	ssize_t count = recv(fd, found, sizeof found - 1, MSG_DONTWAIT);
	EXPECT(what, count, strlen(bytes));
	EXPECT_TEXT(what, found, bytes);
}

static void expect_mark(const char *what, int fd, int there)
{
	int found = -1;
	BUILD(ioctl(fd, SIOCATMARK, &found));
	EXPECT(what, found, there);
}

static void expect_ready(const char *what, int fd, int ready)
{
	struct pollfd one = { .fd = fd, .events = POLLPRI };
	EXPECT(what, poll(&one, 1, 0), ready);
}

static void expect_counted(const char *what, int fd, int count)
{
	int found = -1;
	BUILD(ioctl(fd, FIONREAD, &found));
	EXPECT(what, found, count);
}

static void expect_urgent(const char *what, int fd, char urgent)
{
	char found = 0;
	EXPECT(what, recv(fd, &found, 1, MSG_OOB | MSG_DONTWAIT), 1);
	EXPECT(what, found, urgent);
}

static void make(int pair[2], const char *before, char urgent, const char *behind)
{
	tcp_pair(AF_INET, pair);
	put(pair[0], before, urgent, behind);
	await_arrival(pair[0]);
}

static void inlined(int fd)
{
	int on = 1;
	BUILD(setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int ahead[2], last[2], first[2], alone[2], known[2], known_last[2], reached[2], known_reached[2], among[2],
		among_first[2], both[2], ended[2], over[2];
	BUILD(signal(SIGURG, tell) == SIG_ERR ? -1 : 0);
	make(ahead, "before", 'A', "behind");
	make(last, "before", 'L', "");
	make(first, "", 'F', "behind");
	make(alone, "", 'X', "");
	make(known, "before", 'K', "behind");
	expect_urgent("known", known[1], 'K');
	make(known_last, "", 'Y', "");
	expect_urgent("known and last", known_last[1], 'Y');
	make(reached, "before", 'R', "behind");
	expect("up to the mark", reached[1], "before");
	make(known_reached, "before", 'S', "behind");
	expect("up to the known mark", known_reached[1], "before");
	expect_urgent("known and reached", known_reached[1], 'S');
	make(among, "before", 'I', "behind");
	inlined(among[1]);
	make(among_first, "before", 'J', "behind");
	inlined(among_first[1]);
	expect("up to the mark, among others", among_first[1], "before");
	make(ended, "before", 'E', "behind");
	close(ended[0]);
	make(over, "before", 'O', "behind");
	expect("before one that is over", over[1], "before");
	expect("behind one that is over", over[1], "behind");

	tcp_pair(AF_INET6, both);
	BUILD(fcntl(both[1], F_SETOWN, getpid()));
	put(both[0], "to", 'T', "");
	put(both[1], "fro", 'V', "and back");
	await_arrival(both[0]);
	await_arrival(both[1]);
	EXPECT("told of one", told, 1);

	int listener = tcp_listen(AF_INET), client = tcp_connect(AF_INET, tcp_port(listener, false));
	put(client, "early", 'W', "bird");
	conform_ready();
	conform_wait();

	expect_ready("ready, ahead", ahead[1], 1);
	expect_counted("counted, ahead", ahead[1], 6);
	expect_mark("mark, ahead", ahead[1], 0);
	expect("ahead, before", ahead[1], "before");
	expect_mark("mark, ahead, reached", ahead[1], 1);
	expect_urgent("ahead, urgent", ahead[1], 'A');
	expect("ahead, behind", ahead[1], "behind");
	expect_mark("mark, ahead, passed", ahead[1], 0);

	expect("last, before", last[1], "before");
	expect_urgent("last, urgent", last[1], 'L');

	expect_mark("mark, first", first[1], 1);
	expect_counted("counted, first", first[1], 0);
	expect_urgent("first, urgent", first[1], 'F');
	expect("first, behind", first[1], "behind");

	expect_ready("ready, alone", alone[1], 1);
	expect_mark("mark, alone", alone[1], 1);
	expect_urgent("alone, urgent", alone[1], 'X');
	conform_expect_nothing("alone", alone[1]);

	char byte;
	expect_ready("ready, known", known[1], 0);
	expect_counted("counted, known", known[1], 6);
	EXPECT_ERROR("known, again", recv(known[1], &byte, 1, MSG_OOB | MSG_DONTWAIT), EINVAL);
	expect("known, before", known[1], "before");
	expect_mark("mark, known, reached", known[1], 1);
	expect("known, behind", known[1], "behind");

	expect_mark("mark, known and last", known_last[1], 1);
	EXPECT_ERROR("known and last, again", recv(known_last[1], &byte, 1, MSG_OOB | MSG_DONTWAIT), EINVAL);
	conform_write_all(known_last[0], "more", 4);
	await_arrival(known_last[0]);
	expect("known and last, more", known_last[1], "more");

	expect_mark("mark, reached", reached[1], 1);
	expect_urgent("reached, urgent", reached[1], 'R');
	expect("reached, behind", reached[1], "behind");

	expect_mark("mark, known and reached", known_reached[1], 1);
	EXPECT_ERROR("known and reached, again", recv(known_reached[1], &byte, 1, MSG_OOB | MSG_DONTWAIT), EINVAL);
	expect("known and reached, behind", known_reached[1], "behind");

	expect_counted("counted, among others", among[1], 13);
	expect("among others, before", among[1], "before");
	expect_mark("mark, among others, reached", among[1], 1);
	expect("among others, behind", among[1], "Ibehind");

	expect_mark("mark, among others, first", among_first[1], 1);
	expect("among others, first", among_first[1], "Jbehind");

	expect("ended, before", ended[1], "before");
	expect_urgent("ended, urgent", ended[1], 'E');
	expect("ended, behind", ended[1], "behind");
	conform_expect_eof("ended", ended[1]);

	expect_ready("ready, over", over[1], 0);
	expect_mark("mark, over", over[1], 0);
	conform_expect_nothing("over", over[1]);

	EXPECT("told of one still", told, 1);
	expect("to", both[1], "to");
	expect_urgent("to, urgent", both[1], 'T');
	expect("fro", both[0], "fro");
	expect_urgent("fro, urgent", both[0], 'V');
	expect("and back", both[0], "and back");
	put(both[0], "", 'Z', "");
	await_arrival(both[0]);
	EXPECT("told of another", told, 2);

	int accepted = BUILD(accept(listener, NULL, NULL));
	expect("not accepted, before", accepted, "early");
	expect_urgent("not accepted, urgent", accepted, 'W');
	expect("not accepted, behind", accepted, "bird");
	conform_pass();
}
