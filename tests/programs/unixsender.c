/*
 * Whom recvfrom names as the sender of datagrams that are queued in a Unix socket: senders by path and abstract name that
 * still have their sockets, have closed them, have removed their names, and such without a name.
 */
#include "conform.h"
#include <sys/socket.h>
#include <sys/un.h>

enum { LIVE, CLOSED, REMOVED, RELATIVE, ABSTRACT, ABSTRACT_CLOSED, NAMELESS, SENDERS };

static struct sockaddr_un names[SENDERS];
static socklen_t lengths[SENDERS];

static void set_name(int which, const char *path)
{
	names[which].sun_family = AF_UNIX;
	size_t length = (size_t)snprintf(names[which].sun_path, sizeof names[which].sun_path, "%s", path);
	lengths[which] = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1);
}

static void set_abstract(int which, const char *suffix)
{
	names[which].sun_family = AF_UNIX;
	size_t length = (size_t)snprintf(names[which].sun_path + 1, sizeof names[which].sun_path - 1, "%s.%s",
					 conform_unique(), suffix);
	lengths[which] = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(chdir(conform_path(".")));
	set_name(LIVE, conform_path("live"));
	set_name(CLOSED, conform_path("closed"));
	set_name(REMOVED, conform_path("removed"));
	set_name(RELATIVE, "relative");
	set_abstract(ABSTRACT, "a");
	set_abstract(ABSTRACT_CLOSED, "b");
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	snprintf(at.sun_path, sizeof at.sun_path, "%s", conform_path("receiver"));
	int receiver = (int)BUILD(socket(AF_UNIX, SOCK_DGRAM, 0)), fds[SENDERS];
	BUILD(bind(receiver, (struct sockaddr *)&at, sizeof at));
	for (int i = 0; i < SENDERS; i++) {
		fds[i] = (int)BUILD(socket(AF_UNIX, SOCK_DGRAM, 0));
		if (lengths[i])
			BUILD(bind(fds[i], (struct sockaddr *)&names[i], lengths[i]));
		char text = (char)('0' + i);
		BUILD(sendto(fds[i], &text, 1, 0, (struct sockaddr *)&at, sizeof at));
		if (i == LIVE || i == ABSTRACT)
			continue;
		BUILD(close(fds[i]));
		if (i == REMOVED)
			BUILD(unlink(names[i].sun_path));
	}
	conform_ready();
	conform_wait();

	for (int i = 0; i < SENDERS; i++) {
		struct sockaddr_un from;
		socklen_t length = sizeof from;
		char got = 0, what[32];
		memset(&from, 0, sizeof from);
		snprintf(what, sizeof what, "sender %d", i);
		EXPECT(what, recvfrom(receiver, &got, 1, MSG_DONTWAIT, (struct sockaddr *)&from, &length), 1);
		EXPECT(what, got, '0' + i);
		EXPECT(what, length, lengths[i]);
		EXPECT(what, lengths[i] ? memcmp(&from, &names[i], lengths[i]) : 0, 0);
	}
	struct stat stat;
	EXPECT("a name that a closed socket has left", lstat(names[CLOSED].sun_path, &stat), 0);
	EXPECT_ERROR("a name that is removed", lstat(names[REMOVED].sun_path, &stat), ENOENT);
	EXPECT("a relative name", lstat(names[RELATIVE].sun_path, &stat), 0);
	/* Nobody holds what was taken for the restart only. */
	int again = (int)BUILD(socket(AF_UNIX, SOCK_DGRAM, 0));
	EXPECT("a name that is free", bind(again, (struct sockaddr *)&names[ABSTRACT_CLOSED], lengths[ABSTRACT_CLOSED]), 0);
	conform_pass();
}
