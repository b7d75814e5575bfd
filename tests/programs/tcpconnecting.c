/*
 * Connections that nobody has answered yet: the listener's queue is full, so that the kernel keeps asking. One is made without
 * blocking, a process waits for another in connect(2). Once the listener accepts, both are made.
 */
#include "tcp.h"
#include <poll.h>

enum { MOST = 8, PATIENCE_MS = 60000 };

static int port;

static int begin(int flags)
{
	int fd = tcp_ask(port, flags);
	if (fd < 0)
		conform_fail("connect: %s", strerror(-fd));
	return fd;
}

static void blocks(void *unused)
{
	(void)unused;
	conform_mark("connecting");
	int fd = begin(0);
	conform_write_all(fd, "blocked", 7);
	conform_expect_bytes("answer to the one that blocked", fd, "ok");
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int listener = tcp_listen(AF_INET), clients[MOST], count = 0;
	port = tcp_port(listener, false);
	BUILD(listen(listener, 0));
	do {
		if (count == MOST)
			conform_skip("this kernel's queues are not full");
		clients[count++] = begin(SOCK_NONBLOCK);
		conform_sleep_ms(20);
	} while (!tcp_is_asking(clients[count - 1]));
	int asking = clients[count - 1], own = tcp_port(asking, false);
	pid_t process = conform_spawn(blocks, NULL);
	conform_await("connecting");
	conform_sleep_ms(20);
	conform_ready();
	conform_wait();
	EXPECT("port of the one that asks", tcp_port(asking, false), own);
	struct pollfd polled = { .fd = asking, .events = POLLOUT };
	EXPECT("ready before anybody has answered", poll(&polled, 1, 0), 0);
	/* Room for all of them: else one may be answered and not let in. */
	BUILD(listen(listener, 16));
	bool blocked = false, came = false;
	for (int left = count + 1; left > 0; left--) {
		struct pollfd waits = { .fd = listener, .events = POLLIN };
		EXPECT("a connection", poll(&waits, 1, PATIENCE_MS), 1);
		int fd = BUILD(accept(listener, NULL, NULL)), peer = tcp_port(fd, true), which = 0;
		while (which < count && tcp_port(clients[which], false) != peer)
			which++;
		if (which == count) {
			conform_expect_bytes("bytes of the one that blocked", fd, "blocked");
			conform_write_all(fd, "ok", 2);
			blocked = true;
			continue;
		}
		if (which == count - 1) {
			int error = -1;
			socklen_t size = sizeof error;
			EXPECT("made", poll(&polled, 1, PATIENCE_MS), 1);
			BUILD(getsockopt(asking, SOL_SOCKET, SO_ERROR, &error, &size));
			EXPECT("error of the one that asked", error, 0);
			came = true;
		}
		conform_write_all(clients[which], "hello", 5);
		conform_expect_bytes("bytes of one that did not block", fd, "hello");
	}
	EXPECT("the one that asked has come", came, true);
	EXPECT("the one that blocked has come", blocked, true);
	conform_join(process);
	conform_pass();
}
