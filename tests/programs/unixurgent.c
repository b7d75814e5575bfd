/*
 * Urgent bytes (MSG_OOB) in Unix streams that are not read yet: in the middle, first and last, inline, behind
 * descriptors and between bytes of known senders, from a peer that is gone.
 */
#include "conform.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#ifndef SIOCATMARK
#define SIOCATMARK 0x8905
#endif

static const struct stream {
	const char *what, *before, *behind;
	bool inside, credentials, closed, again, rights;
} streams[] = {
	{ .what = "in the middle", .before = "abc", .behind = "defg" },
	{ .what = "first", .before = "", .behind = "behind" },
	{ .what = "last", .before = "before", .behind = "" },
	{ .what = "alone", .before = "", .behind = "" },
	{ .what = "inline", .before = "abc", .behind = "defg", .inside = true },
	{ .what = "inline and first", .before = "", .behind = "behind", .inside = true },
	{ .what = "of a known sender", .before = "abc", .behind = "defg", .credentials = true },
	{ .what = "of a peer that is gone", .before = "abc", .behind = "defg", .closed = true },
	{ .what = "behind another one", .before = "abV", .behind = "defg", .again = true },
	{ .what = "behind descriptors", .before = "abc", .behind = "defg", .rights = true },
};
enum { STREAMS = sizeof streams / sizeof *streams };

static void send_rights(int fd, int what)
{
	char room[CMSG_SPACE(sizeof what)] = "";
	struct iovec part = { .iov_base = "R", .iov_len = 1 };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
	struct cmsghdr *control = CMSG_FIRSTHDR(&header);
	control->cmsg_level = SOL_SOCKET;
	control->cmsg_type = SCM_RIGHTS;
	control->cmsg_len = CMSG_LEN(sizeof what);
	memcpy(CMSG_DATA(control), &what, sizeof what);
	EXPECT("a descriptor", sendmsg(fd, &header, 0), 1);
}

static bool at_mark(int fd)
{
	int answer = -1;
	BUILD(ioctl(fd, SIOCATMARK, &answer));
	return answer;
}

static void build(const struct stream *stream, int pair[2])
{
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	int on = 1;
	if (stream->inside)
		BUILD(setsockopt(pair[1], SOL_SOCKET, SO_OOBINLINE, &on, sizeof on));
	if (stream->credentials)
		BUILD(setsockopt(pair[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof on));
	if (stream->rights)
		send_rights(pair[0], pair[0]);
	for (const char *each = stream->before; *each; each++)
		if (send(pair[0], each, 1, *each == 'V' && stream->again ? MSG_OOB : 0) != 1)
			conform_skip("Unix sockets have no urgent bytes here");
	if (send(pair[0], "U", 1, MSG_OOB) != 1)
		conform_skip("Unix sockets have no urgent bytes here");
	conform_write_all(pair[0], stream->behind, strlen(stream->behind));
	if (stream->closed)
		BUILD(close(pair[0]));
}

static void expect_now(const char *what, int fd, const char *bytes)
{
	char got[64] = "";
	ssize_t length = recv(fd, got, sizeof got - 1, MSG_DONTWAIT);
	EXPECT(what, length, strlen(bytes));
	EXPECT_TEXT(what, got, bytes);
}

static void check(const struct stream *stream, const int pair[2])
{
	struct pollfd ready = { .fd = pair[1], .events = POLLPRI };
	char byte = 0, rest[16], room[CMSG_SPACE(sizeof(int))];
	BUILD(poll(&ready, 1, 0));
	EXPECT(stream->what, ready.revents & POLLPRI, POLLPRI);
	if (stream->rights) {
		struct iovec part = { .iov_base = rest, .iov_len = sizeof rest };
		struct msghdr header = {
			.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room
		};
		EXPECT("bytes with a descriptor", recvmsg(pair[1], &header, MSG_DONTWAIT), 1);
		EXPECT("a descriptor", CMSG_FIRSTHDR(&header) != NULL, true);
	}
	EXPECT(stream->what, at_mark(pair[1]), !*stream->before);
	if (*stream->before)
		expect_now(stream->what, pair[1], stream->before);
	EXPECT(stream->what, at_mark(pair[1]), true);
	if (stream->inside) {
		snprintf(rest, sizeof rest, "U%s", stream->behind);
		expect_now(stream->what, pair[1], rest);
	} else {
		EXPECT(stream->what, recv(pair[1], &byte, 1, MSG_OOB), 1);
		EXPECT(stream->what, byte, 'U');
		if (*stream->behind)
			expect_now(stream->what, pair[1], stream->behind);
	}
	/* A byte that was read apart leaves its mark until what follows is read. */
	if (stream->inside || *stream->behind)
		EXPECT(stream->what, at_mark(pair[1]), false);
	if (stream->closed)
		conform_expect_eof(stream->what, pair[1]);
	else
		EXPECT_ERROR(stream->what, recv(pair[1], &byte, 1, MSG_DONTWAIT), EAGAIN);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int pairs[STREAMS][2];
	for (int i = 0; i < STREAMS; i++)
		build(&streams[i], pairs[i]);
	conform_ready();
	conform_wait();
	for (int i = 0; i < STREAMS; i++)
		check(&streams[i], pairs[i]);
	conform_pass();
}
