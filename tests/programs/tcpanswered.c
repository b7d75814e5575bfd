/*
 * Processes were stopped in connect(2), and their connections were made, refused, or made and ended before they could hear
 * of it: they do when they go on.
 */
#include "tcp.h"
#include <poll.h>

enum { MOST = 8, PATIENCE_MS = 60000 };

struct server {
	const char *name;
	int listener;
	int port;
	int fillers[MOST];
	pid_t process;
};

static void is_let_in(void *data)
{
	struct server *server = data;
	conform_mark(server->name);
	int fd = tcp_ask(server->port, 0);
	if (fd < 0)
		conform_fail("connect of the one that is let in: %s", strerror(-fd));
	conform_write_all(fd, "hello", 5);
	conform_expect_bytes("answer", fd, "ok");
}

static void is_refused(void *data)
{
	struct server *server = data;
	close(server->listener);
	conform_mark(server->name);
	EXPECT("the one that is refused", tcp_ask(server->port, 0), -ECONNREFUSED);
}

static void is_told_and_left(void *data)
{
	struct server *server = data;
	conform_mark(server->name);
	int fd = tcp_ask(server->port, 0);
	if (fd < 0)
		conform_fail("connect of the one that is left: %s", strerror(-fd));
	conform_expect_bytes("last word", fd, "bye");
	conform_expect_eof("end", fd);
}

/* A server whose queue is full, and a process that is stopped in connect. */
static void ask(struct server *server, void (*body)(void *))
{
	int count = 0;
	server->listener = tcp_listen(AF_INET);
	/* As servers have it: its port is not kept by connections that it has closed. */
	int on = 1;
	BUILD(setsockopt(server->listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	server->port = tcp_port(server->listener, false);
	BUILD(listen(server->listener, 0));
	do {
		if (count == MOST)
			conform_skip("this kernel's queues are not full");
		server->fillers[count++] = tcp_ask(server->port, SOCK_NONBLOCK);
		conform_sleep_ms(20);
	} while (!tcp_is_asking(server->fillers[count - 1]));
	/* The last one would take the place. */
	close(server->fillers[count - 1]);
	server->process = conform_spawn(body, server);
	conform_await(server->name);
	conform_sleep_ms(100);
	BUILD(kill(server->process, SIGSTOP));
	int status;
	BUILD(waitpid(server->process, &status, WUNTRACED));
	/* Who fills the queue leaves it. */
	for (int left = count - 1; left > 0; left--)
		close(BUILD(accept(server->listener, NULL, NULL)));
}

static int let_in(struct server *server)
{
	struct pollfd waits = { .fd = server->listener, .events = POLLIN };
	EXPECT("a connection", poll(&waits, 1, PATIENCE_MS), 1);
	return BUILD(accept(server->listener, NULL, NULL));
}

static void go_on(struct server *server)
{
	BUILD(kill(server->process, SIGCONT));
	conform_join(server->process);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct server stays = { .name = "stays" }, refuses = { .name = "refuses" }, leaves = { .name = "leaves" };
	ask(&stays, is_let_in);
	ask(&leaves, is_told_and_left);
	ask(&refuses, is_refused);
	int stayed = let_in(&stays);
	close(refuses.listener);
	int left = let_in(&leaves);
	conform_write_all(left, "bye", 3);
	close(left);
	/* The kernel asks once a second. */
	conform_sleep_ms(2500);
	conform_ready();
	conform_wait();
	BUILD(kill(stays.process, SIGCONT));
	conform_expect_bytes("bytes of the one that was let in", stayed, "hello");
	conform_write_all(stayed, "ok", 2);
	conform_join(stays.process);
	go_on(&refuses);
	go_on(&leaves);
	conform_pass();
}
