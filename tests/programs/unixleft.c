/*
 * Connections to Unix listeners that nobody has accepted yet, whose clients have closed: one that has sent nothing, and others
 * whose bytes are there until the end. The listeners have a path, a relative one, and an abstract name.
 */
#include "conform.h"
#include <sys/socket.h>
#include <sys/un.h>

enum { LISTENERS = 3, CLIENTS = 4, LONG = 60000 };

static const char *const texts[CLIENTS] = {"first", "", "third, which is longer", ""};

static struct sockaddr_un address_of(int which, socklen_t *length)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char *path = address.sun_path;
	int used = which == 0 ? snprintf(path, sizeof address.sun_path, "%s", conform_path("s")) :
		   which == 1 ? snprintf(path, sizeof address.sun_path, "relative") :
				1 + snprintf(path + 1, sizeof address.sun_path - 1, "%s-left", conform_unique());
	*length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + (size_t)used + (which < 2));
	return address;
}

static void leave(int which, const char *text, size_t size)
{
	socklen_t length;
	struct sockaddr_un address = address_of(which, &length);
	int fd = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
	BUILD(connect(fd, (struct sockaddr *)&address, length));
	conform_write_all(fd, text, size);
	BUILD(close(fd));
}

static int accepted(int listener)
{
	int fd = (int)BUILD(accept(listener, NULL, NULL));
	struct ucred peer;
	socklen_t size = sizeof peer;
	BUILD(getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size));
	EXPECT("user of the client", peer.uid, geteuid());
	EXPECT("group of the client", peer.gid, getegid());
	return fd;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int listeners[LISTENERS];
	static char bytes[LONG], found[LONG];
	conform_fill(bytes, sizeof bytes, 9);
	BUILD(chdir(conform_path("")));
	for (int i = 0; i < LISTENERS; i++) {
		socklen_t length;
		struct sockaddr_un address = address_of(i, &length);
		listeners[i] = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
		BUILD(bind(listeners[i], (struct sockaddr *)&address, length));
		BUILD(listen(listeners[i], 8));
		for (int j = 0; j < CLIENTS; j++)
			leave(i, texts[j], strlen(texts[j]));
		leave(i, bytes, sizeof bytes);
	}
	conform_ready();
	conform_wait();
	for (int i = 0; i < LISTENERS; i++) {
		for (int j = 0; j < CLIENTS; j++) {
			int fd = accepted(listeners[i]);
			if (*texts[j])
				conform_expect_bytes("what a client has left", fd, texts[j]);
			conform_expect_eof("its end", fd);
			BUILD(close(fd));
		}
		int fd = accepted(listeners[i]);
		conform_read_all(fd, found, sizeof found);
		conform_verify("what the last one has left", found, sizeof found, 9);
		conform_expect_eof("its end", fd);
		BUILD(close(fd));
		BUILD(fcntl(listeners[i], F_SETFL, O_NONBLOCK));
		EXPECT_ERROR("one more client", accept(listeners[i], NULL, NULL), EAGAIN);
	}
	conform_pass();
}
