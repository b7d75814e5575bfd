/*
 * A Unix socket that was bound to a relative name in a folder that is removed since, by a process that is elsewhere now: it keeps
 * its name, and no folder comes to be anywhere.
 */
#include "conform.h"
#include <sys/socket.h>
#include <sys/un.h>

int main(int argc, char **argv)
{
	struct sockaddr_un name = { .sun_family = AF_UNIX, .sun_path = "folder/socket" }, found = { 0 };
	socklen_t length = offsetof(struct sockaddr_un, sun_path) + sizeof "folder/socket", size = sizeof found;
	char bytes[8] = "";
	conform_start(argc, argv);
	BUILD(chdir(conform_path(".")));
	BUILD(mkdir("folder", 0700));
	int bound = (int)BUILD(socket(AF_UNIX, SOCK_DGRAM, 0)), other = (int)BUILD(socket(AF_UNIX, SOCK_DGRAM, 0));
	BUILD(bind(bound, (struct sockaddr *)&name, length));
	BUILD(connect(other, (struct sockaddr *)&name, length));
	BUILD(unlink("folder/socket"));
	BUILD(rmdir("folder"));
	conform_write_all(other, "queued", 6);
	/* Where an ordinary user makes no folders. */
	BUILD(chdir("/"));
	conform_ready();
	conform_wait();
	BUILD(getsockname(bound, (struct sockaddr *)&found, &size));
	EXPECT("length of the name", size, length);
	EXPECT_TEXT("name", found.sun_path, name.sun_path);
	EXPECT("bytes", BUILD(read(bound, bytes, sizeof bytes)), 6);
	EXPECT_TEXT("datagram", bytes, "queued");
	conform_write_all(other, "more", 4);
	EXPECT("bytes", BUILD(read(bound, bytes, sizeof bytes)), 4);
	EXPECT_ERROR("folder where it was", access(conform_path("folder"), F_OK), ENOENT);
	EXPECT_ERROR("folder where it is", access("/folder", F_OK), ENOENT);
	conform_pass();
}
