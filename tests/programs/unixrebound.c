/*
 * Unix sockets whose path is not theirs any more: unlinked and bound again by another one, unlinked only, taken by a file.
 * What stands at the path stays what it is.
 */
#include "conform.h"
#include <dirent.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static struct sockaddr_un address_of(const char *name)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	snprintf(address.sun_path, sizeof address.sun_path, "%s", conform_path(name));
	return address;
}

static int bound(const char *name, int type)
{
	struct sockaddr_un address = address_of(name);
	int fd = BUILD(socket(AF_UNIX, type, 0));
	BUILD(bind(fd, (struct sockaddr *)&address, sizeof address));
	if (type == SOCK_STREAM)
		BUILD(listen(fd, 4));
	return fd;
}

static int reach(const char *name, int type)
{
	struct sockaddr_un address = address_of(name);
	int fd = BUILD(socket(AF_UNIX, type, 0));
	BUILD(connect(fd, (struct sockaddr *)&address, sizeof address));
	return fd;
}

static void expect_name(const char *what, int fd, const char *name, bool peer)
{
	struct sockaddr_un found, address = address_of(name);
	socklen_t length = sizeof found;
	memset(&found, 0, sizeof found);
	if (peer)
		BUILD(getpeername(fd, (struct sockaddr *)&found, &length));
	else
		BUILD(getsockname(fd, (struct sockaddr *)&found, &length));
	EXPECT_TEXT(what, found.sun_path, address.sun_path);
}

static int entries(void)
{
	DIR *folder = opendir(conform_path("d"));
	int count = 0;
	BUILD(folder ? 0 : -1);
	while (readdir(folder))
		count++;
	closedir(folder);
	return count;
}

static void expect_message(const char *what, int fd, const char *bytes)
{
	char found[16] = { 0 };
	EXPECT(what, recv(fd, found, sizeof found - 1, MSG_DONTWAIT), strlen(bytes));
	EXPECT_TEXT(what, found, bytes);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("d"), 0700));

	/* Three listeners one after the other at one path, the first two with a connection and one that waits. */
	int listeners[3], clients[3], servers[3], waiting[3];
	for (int i = 0; i < 3; i++) {
		if (i > 0)
			BUILD(unlink(conform_path("d/s")));
		listeners[i] = bound("d/s", SOCK_STREAM);
		clients[i] = reach("d/s", SOCK_STREAM);
		servers[i] = BUILD(accept(listeners[i], NULL, NULL));
		waiting[i] = reach("d/s", SOCK_STREAM);
		char text[] = { (char)('a' + i), 0 };
		conform_write_all(clients[i], text, 1);
	}
	/* A listener that has lost its name, one whose name a file has taken, and two that receive datagrams. */
	int nameless = bound("d/gone", SOCK_STREAM), far = reach("d/gone", SOCK_STREAM);
	BUILD(unlink(conform_path("d/gone")));
	int taken = bound("d/file", SOCK_STREAM);
	BUILD(unlink(conform_path("d/file")));
	int file = BUILD(open(conform_path("d/file"), O_RDWR | O_CREAT | O_EXCL, 0600));
	conform_write_all(file, "mine", 4);
	close(file);
	int datagrams[2], sender[2];
	for (int i = 0; i < 2; i++) {
		if (i > 0)
			BUILD(unlink(conform_path("d/dgram")));
		datagrams[i] = bound("d/dgram", SOCK_DGRAM);
		sender[i] = reach("d/dgram", SOCK_DGRAM);
		conform_write_all(sender[i], i ? "new" : "old", 3);
	}
	int count = entries();
	struct stat after;
	conform_ready();
	conform_wait();

	EXPECT("names in the folder", entries(), count);
	for (int i = 0; i < 3; i++) {
		char text[] = { (char)('a' + i), 0 };
		expect_name("name of a listener", listeners[i], "d/s", false);
		expect_name("name of an accepted socket", servers[i], "d/s", false);
		expect_name("peer of a client", clients[i], "d/s", true);
		conform_expect_bytes("bytes of a connection", servers[i], text);
		int late = BUILD(accept(listeners[i], NULL, NULL));
		conform_write_all(late, text, 1);
		conform_expect_bytes("bytes of one that waited", waiting[i], text);
		close(late);
		BUILD(fcntl(listeners[i], F_SETFL, O_NONBLOCK));
		EXPECT_ERROR("a further connection", accept(listeners[i], NULL, NULL), EAGAIN);
	}
	int again = reach("d/s", SOCK_STREAM);
	EXPECT_ERROR("a connection of the first", accept(listeners[0], NULL, NULL), EAGAIN);
	EXPECT_ERROR("a connection of the second", accept(listeners[1], NULL, NULL), EAGAIN);
	close(BUILD(accept(listeners[2], NULL, NULL)));
	close(again);
	expect_name("name of one that was unlinked", nameless, "d/gone", false);
	EXPECT_ERROR("a name that is gone", access(conform_path("d/gone"), F_OK), ENOENT);
	int accepted = BUILD(accept(nameless, NULL, NULL));
	conform_write_all(far, "far", 3);
	conform_expect_bytes("bytes of one that was unlinked", accepted, "far");
	expect_name("name that a file has taken", taken, "d/file", false);
	char found[8];
	EXPECT("length of the file", conform_read_file(conform_path("d/file"), found, sizeof found), 4);
	EXPECT_TEXT("content of the file", found, "mine");
	for (int i = 0; i < 2; i++) {
		expect_name("name of a datagram socket", datagrams[i], "d/dgram", false);
		expect_message("datagram from before", datagrams[i], i ? "new" : "old");
		conform_write_all(sender[i], i ? "later" : "earlier", i ? 5 : 7);
		expect_message("datagram from after", datagrams[i], i ? "later" : "earlier");
	}
	BUILD(lstat(conform_path("d/s"), &after));
	EXPECT("a socket at the path", S_ISSOCK(after.st_mode), 1);
	conform_pass();
}
