/*
 * Unix sockets whose files were renamed after they were bound, as by programs that have a new socket take the place of an
 * old one: in the same folder and under a relative path, with something else in the place of the old name, and another mode.
 */
#include "conform.h"
#include <sys/socket.h>
#include <sys/un.h>

static int bound(int type, const char *path)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
	int fd = BUILD(socket(AF_UNIX, type, 0));
	BUILD(bind(fd, (struct sockaddr *)&name, sizeof name));
	if (type == SOCK_STREAM)
		BUILD(listen(fd, 4));
	return fd;
}

static void expect_name(int fd, const char *path)
{
	struct sockaddr_un name = {0};
	socklen_t length = sizeof name;
	BUILD(getsockname(fd, (struct sockaddr *)&name, &length));
	EXPECT_TEXT("name that was bound", name.sun_path, path);
}

static int connected(int type, const char *path)
{
	struct sockaddr_un name = {.sun_family = AF_UNIX};
	snprintf(name.sun_path, sizeof name.sun_path, "%s", path);
	int fd = BUILD(socket(AF_UNIX, type, 0));
	BUILD(connect(fd, (struct sockaddr *)&name, sizeof name));
	return fd;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(chdir(conform_path(".")));
	const char *before = conform_path("stream.new"), *after = conform_path("stream");
	int stream = bound(SOCK_STREAM, before), datagrams = bound(SOCK_DGRAM, "datagrams.new");
	BUILD(chmod(before, 0640));
	BUILD(rename(before, after));
	BUILD(rename("datagrams.new", "datagrams"));
	/* The old name is a file's by now. */
	int file = BUILD(open("datagrams.new", O_RDWR | O_CREAT | O_EXCL, 0600));
	conform_write_all(file, "file", 4);
	close(file);
	int early = connected(SOCK_STREAM, after);
	conform_ready();
	conform_wait();
	struct stat stat;
	expect_name(stream, before);
	expect_name(datagrams, "datagrams.new");
	EXPECT_ERROR("old name", lstat(before, &stat), ENOENT);
	BUILD(lstat(after, &stat));
	EXPECT("mode", stat.st_mode, S_IFSOCK | 0640);
	BUILD(lstat("datagrams.new", &stat));
	EXPECT("file in the place of an old name", stat.st_mode, S_IFREG | 0600);
	EXPECT("its size", stat.st_size, 4);
	int first = BUILD(accept(stream, NULL, NULL)), late = connected(SOCK_STREAM, after);
	conform_write_all(early, "early", 5);
	conform_expect_bytes("connection of before", first, "early");
	int second = BUILD(accept(stream, NULL, NULL));
	conform_write_all(late, "late", 4);
	conform_expect_bytes("connection of afterwards", second, "late");
	int sender = connected(SOCK_DGRAM, "datagrams");
	conform_write_all(sender, "datagram", 8);
	conform_expect_bytes("datagram", datagrams, "datagram");
	conform_pass();
}
