/*
 * Descriptors under way in Unix sockets (SCM_RIGHTS): of streams between bytes without, of datagrams and of packets; some that are
 * open nowhere else, one that is shared with an open one, and a socket in which another is under way.
 */
#include "conform.h"
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

enum { MOST = 8 };

static void send_with(int through, const char *text, const int *fds, int count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(MOST * sizeof(int))];
	} control = {0};
	struct iovec part = {(void *)text, strlen(text)};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	if (count) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		struct cmsghdr *header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(header), fds, count * sizeof(int));
	}
	BUILD(sendmsg(through, &message, 0));
}

/* Receives as much as comes, which must be `text` with so many descriptors. */
static void receive(int from, const char *text, int *fds, int count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(MOST * sizeof(int))];
	} control = {0};
	char bytes[256];
	struct iovec part = {bytes, sizeof bytes};
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
	ssize_t length = BUILD(recvmsg(from, &message, MSG_DONTWAIT));
	EXPECT("length", length, strlen(text));
	bytes[length] = 0;
	EXPECT_TEXT("bytes", bytes, text);
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	EXPECT("ancillary data", header != NULL, count > 0);
	if (!count)
		return;
	EXPECT("its length", header->cmsg_len, CMSG_LEN(count * sizeof(int)));
	memcpy(fds, CMSG_DATA(header), count * sizeof(int));
}

static int pair(int type, int *other)
{
	int ends[2];
	BUILD(socketpair(AF_UNIX, type, 0, ends));
	*other = ends[1];
	return ends[0];
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int stream_in, datagram_in, packet_in, inner_in;
	int stream = pair(SOCK_STREAM, &stream_in);
	int datagram = pair(SOCK_DGRAM, &datagram_in), packet = pair(SOCK_SEQPACKET, &packet_in);
	int pipe_ends[2];
	BUILD(pipe(pipe_ends));
	conform_write_all(pipe_ends[1], "in the pipe", 11);
	int shared = (int)BUILD(open(conform_path("shared"), O_CREAT | O_RDWR, 0600));
	conform_write_all(shared, "0123456789", 10);
	BUILD(lseek(shared, 3, SEEK_SET));
	int deleted = (int)BUILD(open(conform_path("deleted"), O_CREAT | O_RDWR, 0600));
	conform_write_all(deleted, "deleted", 7);
	BUILD(lseek(deleted, 0, SEEK_SET));
	BUILD(unlink(conform_path("deleted")));
	int counter = (int)BUILD(eventfd(42, EFD_NONBLOCK));
	int listener = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	BUILD(conform_bind(listener, (struct sockaddr *)&address, sizeof address));
	BUILD(listen(listener, 5));

	send_with(stream, "plain ", NULL, 0);
	send_with(stream, "bytes", NULL, 0);
	send_with(stream, "with two", (int[]){pipe_ends[0], shared}, 2);
	send_with(stream, "plain again", NULL, 0);
	send_with(stream, "x", (int[]){counter}, 1);
	send_with(stream, "y", (int[]){pipe_ends[1]}, 1);
	send_with(datagram, "datagram", NULL, 0);
	send_with(datagram, "with one", (int[]){deleted}, 1);
	/* A socket with a descriptor under way in it, itself under way. */
	int inner = pair(SOCK_STREAM, &inner_in);
	send_with(inner, "inner", (int[]){listener, counter}, 2);
	send_with(packet, "packet", (int[]){inner_in, inner}, 2);
	int gone[] = {pipe_ends[0], pipe_ends[1], deleted, counter, listener, inner, inner_in};
	for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
		BUILD(close(gone[i]));

	conform_ready();
	conform_wait();

	int got[MOST];
	/* Who takes just the bytes before them gets no descriptors. */
	char before[12] = "";
	conform_read_all(stream_in, before, 11);
	EXPECT_TEXT("bytes before", before, "plain bytes");
	receive(stream_in, "with two", got, 2);
	conform_expect_bytes("through the pipe", got[0], "in the pipe");
	char digit;
	conform_read_all(got[1], &digit, 1);
	EXPECT("what is read of the file", digit, '3');
	EXPECT("the offset is shared", lseek(shared, 0, SEEK_CUR), 4);
	int reader = got[0];
	/* The kernel hands bytes out together with those behind them that have descriptors. */
	receive(stream_in, "plain againx", got, 1);
	uint64_t count;
	conform_read_all(got[0], &count, sizeof count);
	EXPECT("the counter", count, 42);
	int shared_counter = got[0];
	receive(stream_in, "y", got, 1);
	conform_write_all(got[0], "more", 4);
	BUILD(close(got[0]));
	conform_expect_bytes("through the pipe again", reader, "more");
	conform_expect_eof("the pipe", reader);
	receive(datagram_in, "datagram", got, 0);
	receive(datagram_in, "with one", got, 1);
	conform_expect_bytes("of the deleted file", got[0], "deleted");
	receive(packet_in, "packet", got, 2);
	int from = got[0], to = got[1];
	receive(from, "inner", got, 2);
	count = 5;
	conform_write_all(got[1], &count, sizeof count);
	conform_read_all(shared_counter, &count, sizeof count);
	EXPECT("the counter by way of the other", count, 5);
	int client = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	socklen_t size = sizeof address;
	BUILD(getsockname(got[0], (struct sockaddr *)&address, &size));
	BUILD(connect(client, (struct sockaddr *)&address, sizeof address));
	BUILD(accept(got[0], NULL, NULL));
	send_with(to, "on", NULL, 0);
	receive(from, "on", got, 0);
	conform_expect_nothing("the stream", stream_in);
	conform_pass();
}
