/*
 * Calls of which a part is done when a checkpoint stops their threads: what writes into a full pipe or socket, and what
 * waits for all of its bytes. None of them comes back with the part alone, unless a handler interrupts it afterwards.
 */
#include "tcp.h"
#include <sys/sendfile.h>
#include <sys/uio.h>

/* More than any socket or pipe takes at once. */
enum { SIZE = 12 << 20, FIRST = 1000, PART = SIZE / 8 };
static unsigned char *bytes;
static volatile sig_atomic_t handled;

struct stream {
	const char *name;
	void (*pair)(int ends[2]);
	ssize_t (*call)(int end);
	bool receives;
};

static void pipe_pair(int ends[2])
{
	BUILD(pipe(ends));
}

static void unix_pair(int ends[2])
{
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
}

static void inet_pair(int ends[2])
{
	tcp_small_pair(AF_INET, ends);
}

static struct msghdr parts(void)
{
	static struct iovec buffers[3];
	buffers[0] = (struct iovec){bytes, 100};
	buffers[1] = (struct iovec){bytes + 100, PART};
	buffers[2] = (struct iovec){bytes + 100 + PART, SIZE - PART - 100};
	return (struct msghdr){.msg_iov = buffers, .msg_iovlen = 3};
}

static ssize_t writes(int end)
{
	return write(end, bytes, SIZE);
}

static ssize_t sends(int end)
{
	return send(end, bytes, SIZE, 0);
}

static ssize_t writes_parts(int end)
{
	struct msghdr message = parts();
	return writev(end, message.msg_iov, 3);
}

static ssize_t sends_message(int end)
{
	struct msghdr message = parts();
	return sendmsg(end, &message, 0);
}

static ssize_t sends_file(int end)
{
	int file = BUILD(open(conform_path("sent"), O_RDWR | O_CREAT | O_EXCL, 0600));
	conform_write_all(file, bytes, SIZE);
	BUILD(lseek(file, 0, SEEK_SET));
	return sendfile(end, file, NULL, SIZE);
}

static ssize_t receives(int end)
{
	return recv(end, bytes, SIZE, MSG_WAITALL);
}

static ssize_t receives_message(int end)
{
	struct msghdr message = parts();
	return recvmsg(end, &message, MSG_WAITALL);
}

static const struct stream streams[] = {
	{"write to a pipe", pipe_pair, writes, false},
	{"write to a Unix socket", unix_pair, writes, false},
	{"writev to a Unix socket", unix_pair, writes_parts, false},
	{"sendmsg to a Unix socket", unix_pair, sends_message, false},
	{"send to a TCP socket", inet_pair, sends, false},
	{"writev to a TCP socket", inet_pair, writes_parts, false},
	{"sendfile to a TCP socket", inet_pair, sends_file, false},
	{"recv from a Unix socket", unix_pair, receives, true},
	{"recv from a TCP socket", inet_pair, receives, true},
	{"recvmsg from a TCP socket", inet_pair, receives_message, true},
};
enum { STREAMS = sizeof streams / sizeof *streams };
static int ends[STREAMS][2];
static int interrupted[2];

static void handle(int signal)
{
	(void)signal;
	handled = 1;
}

static void other_end(void *argument)
{
	size_t which = (size_t)argument;
	const struct stream *stream = &streams[which];
	close(ends[which][0]);
	if (stream->receives)
		memset(bytes, 0, SIZE);
	EXPECT(stream->name, stream->call(ends[which][1]), SIZE);
	if (stream->receives)
		conform_verify(stream->name, bytes, SIZE, 1);
}

/* The part that was done before the handler came is the answer, as it is without checkpoints. */
static void with_handler(void *unused)
{
	(void)unused;
	struct sigaction action = {.sa_handler = handle, .sa_flags = SA_RESTART};
	close(interrupted[0]);
	BUILD(sigaction(SIGUSR1, &action, NULL));
	EXPECT("part of an interrupted write", write(interrupted[1], bytes, SIZE), 65536);
	EXPECT("handled", handled, 1);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
#ifndef __x86_64__
	conform_skip("such calls come back with their first part on this processor");
#endif
	pid_t others[STREAMS];
	bytes = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	conform_fill(bytes, SIZE, 1);
	for (size_t which = 0; which < STREAMS; which++) {
		streams[which].pair(ends[which]);
		if (streams[which].receives) {
			/* Ends of TCP connections are alike, and of a pipe the second one writes. */
			conform_write_all(ends[which][0], bytes, FIRST);
		}
		others[which] = conform_spawn(other_end, (void *)which);
		close(ends[which][1]);
	}
	BUILD(pipe(interrupted));
	BUILD(fcntl(interrupted[1], F_SETPIPE_SZ, 65536));
	pid_t handler = conform_spawn(with_handler, NULL);
	close(interrupted[1]);
	conform_sleep_ms(300);
	conform_ready();
	conform_wait();
	conform_sleep_ms(100);
	BUILD(kill(handler, SIGUSR1));
	conform_join(handler);
	unsigned char *found = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	for (size_t which = 0; which < STREAMS; which++) {
		if (streams[which].receives) {
			conform_write_all(ends[which][0], bytes + FIRST, SIZE - FIRST);
		} else {
			conform_read_all(ends[which][0], found, SIZE);
			conform_verify(streams[which].name, found, SIZE, 1);
		}
		conform_join(others[which]);
	}
	conform_pass();
}
