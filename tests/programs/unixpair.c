/* Pairs of Unix stream sockets: bytes both ways, half shut, peer closed, flags, buffer sizes, shared with a child. */
#include "conform.h"
#include <sys/socket.h>

static int with_child[2];

static void child(void *unused)
{
	(void)unused;
	close(with_child[0]);
	conform_write_all(with_child[1], "from child ", 11);
	conform_mark("born");
	conform_wait();
	conform_expect_bytes("parent's bytes", with_child[1], "from parent");
	conform_write_all(with_child[1], "bye", 3);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int own[2], half[2], gone[2], size = 0, wanted = 70000;
	socklen_t length = sizeof size;
	char byte;
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, own));
	BUILD(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, half));
	BUILD(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gone));
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, with_child));
	BUILD(setsockopt(own[0], SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted));
	int before = 0;
	BUILD(getsockopt(own[0], SOL_SOCKET, SO_SNDBUF, &before, &length));
	conform_write_all(own[0], "to one", 6);
	conform_write_all(own[1], "to zero", 7);
	conform_write_all(half[0], "last words", 10);
	BUILD(shutdown(half[0], SHUT_WR));
	conform_write_all(gone[0], "legacy", 6);
	close(gone[0]);
	pid_t process = conform_spawn(child, NULL);
	close(with_child[1]);
	conform_await("born");
	conform_ready();
	conform_wait();
	conform_expect_bytes("bytes one way", own[1], "to one");
	conform_expect_bytes("bytes the other way", own[0], "to zero");
	BUILD(getsockopt(own[0], SOL_SOCKET, SO_SNDBUF, &size, &length));
	EXPECT("size of the send buffer", size, before);
	conform_expect_bytes("bytes before the shutdown", half[1], "last words");
	conform_expect_eof("half that was shut", half[1]);
	conform_write_all(half[1], "still", 5);
	conform_expect_bytes("half that is open", half[0], "still");
	EXPECT("non-blocking", fcntl(half[0], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	EXPECT_ERROR("empty non-blocking socket", read(half[0], &byte, 1), EAGAIN);
	signal(SIGPIPE, SIG_IGN);
	EXPECT_ERROR("writing to the half that was shut", write(half[0], "x", 1), EPIPE);
	conform_expect_bytes("bytes of a closed peer", gone[1], "legacy");
	conform_expect_eof("closed peer", gone[1]);
	EXPECT("close-on-exec", fcntl(gone[1], F_GETFD), FD_CLOEXEC);
	conform_write_all(with_child[0], "from parent", 11);
	conform_expect_bytes("child's bytes", with_child[0], "from child bye");
	conform_expect_eof("child that has ended", with_child[0]);
	conform_join(process);
	conform_pass();
}
