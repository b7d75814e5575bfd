/* A Unix socket that is bound to a relative path, whose process has gone to another directory since. */
#include "conform.h"
#include <sys/socket.h>
#include <sys/un.h>

int main(int argc, char **argv)
{
	struct sockaddr_un name = { AF_UNIX, "socket" }, unlinked = { AF_UNIX, "unlinked" }, own;
	socklen_t length = sizeof own;
	conform_start(argc, argv);
	BUILD(chdir(conform_path(".")));
	int listener = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0)), gone = (int)BUILD(socket(AF_UNIX, SOCK_DGRAM, 0));
	BUILD(bind(listener, (struct sockaddr *)&name, sizeof name));
	BUILD(bind(gone, (struct sockaddr *)&unlinked, sizeof unlinked));
	BUILD(unlink("unlinked"));
	BUILD(listen(listener, 3));
	BUILD(chdir("/"));
	conform_ready();
	conform_wait();
	BUILD(getsockname(listener, (struct sockaddr *)&own, &length));
	EXPECT_TEXT("name", own.sun_path, "socket");
	length = sizeof own;
	BUILD(getsockname(gone, (struct sockaddr *)&own, &length));
	EXPECT_TEXT("name of the one without a file", own.sun_path, "unlinked");
	EXPECT_ERROR("a file of that name where the process is", access("/unlinked", F_OK), ENOENT);
	EXPECT_ERROR("a file of that name where it was", access(conform_path("unlinked"), F_OK), ENOENT);
	BUILD(chdir(conform_path(".")));
	int client = (int)BUILD(socket(AF_UNIX, SOCK_STREAM, 0));
	BUILD(connect(client, (struct sockaddr *)&name, sizeof name));
	int accepted = (int)BUILD(accept(listener, NULL, NULL));
	BUILD(write(client, "hello", 5));
	conform_expect_bytes("connection", accepted, "hello");
	conform_pass();
}
