/*
 * Connections to a Unix listener that nobody has accepted yet, with bytes in them.
 * conform: optional
 */
#include "conform.h"
#include <sys/socket.h>
#include <sys/un.h>

enum { PENDING = 3 };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	snprintf(address.sun_path, sizeof address.sun_path, "%s", conform_path("s"));
	int listener = BUILD(socket(AF_UNIX, SOCK_STREAM, 0)), clients[PENDING];
	BUILD(bind(listener, (struct sockaddr *)&address, sizeof address));
	BUILD(listen(listener, 8));
	for (int i = 0; i < PENDING; i++) {
		char text[16];
		clients[i] = BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
		BUILD(connect(clients[i], (struct sockaddr *)&address, sizeof address));
		snprintf(text, sizeof text, "hello %d", i);
		conform_write_all(clients[i], text, strlen(text));
	}
	conform_ready();
	conform_wait();
	for (int i = 0; i < PENDING; i++) {
		char text[16];
		int fd = BUILD(accept(listener, NULL, NULL));
		snprintf(text, sizeof text, "hello %d", i);
		conform_expect_bytes("bytes of a connection not yet accepted", fd, text);
		conform_write_all(fd, "ok", 2);
		conform_expect_bytes("answer", clients[i], "ok");
	}
	conform_pass();
}
