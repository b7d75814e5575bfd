/*
 * Pseudoterminals in packet mode (TIOCPKT) whose masters have not read yet what they are told of the other side: that its
 * buffers were flushed, that output stands, of flow control and modes. Bytes that came afterwards are there, too.
 */
#include "conform.h"
#include <sys/ioctl.h>
#include <string.h>
#include <termios.h>

struct pair {
	int master, slave, expected;
	const char *output, *input;
};

static struct pair pair(int expected)
{
	struct pair made = {.expected = expected};
	int yes = 1;
	made.master = (int)BUILD(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK));
	BUILD(grantpt(made.master));
	BUILD(unlockpt(made.master));
	made.slave = (int)BUILD(open(ptsname(made.master), O_RDWR | O_NOCTTY | O_NONBLOCK));
	struct termios modes;
	BUILD(tcgetattr(made.slave, &modes));
	modes.c_lflag &= ~(tcflag_t)ECHO;
	modes.c_oflag &= ~(tcflag_t)OPOST;
	BUILD(tcsetattr(made.slave, TCSANOW, &modes));
	BUILD(ioctl(made.master, TIOCPKT, &yes));
	return made;
}

static void change(int slave, tcflag_t input, tcflag_t local)
{
	struct termios modes;
	BUILD(tcgetattr(slave, &modes));
	modes.c_iflag ^= input;
	modes.c_lflag ^= local;
	BUILD(tcsetattr(slave, TCSANOW, &modes));
}

static void put(struct pair *pair, const char *output, const char *input)
{
	pair->output = output;
	pair->input = input;
	if (output)
		conform_write_all(pair->slave, output, strlen(output));
	if (input)
		conform_write_all(pair->master, input, strlen(input));
}

static void check(const struct pair *pair)
{
	char bytes[64];
	EXPECT("a status", read(pair->master, bytes, sizeof bytes), 1);
	EXPECT("what it tells", bytes[0], pair->expected);
	if (pair->output) {
		ssize_t length = (ssize_t)strlen(pair->output);
		EXPECT("bytes after it", read(pair->master, bytes, sizeof bytes), length + 1);
		EXPECT("of data", bytes[0], TIOCPKT_DATA);
		EXPECT("output", memcmp(bytes + 1, pair->output, (size_t)length), 0);
	}
	EXPECT("nothing more", read(pair->master, bytes, sizeof bytes), -1);
	if (pair->input) {
		ssize_t length = (ssize_t)strlen(pair->input);
		EXPECT("bytes of input", read(pair->slave, bytes, sizeof bytes), length);
		EXPECT("input", memcmp(bytes, pair->input, (size_t)length), 0);
	}
	EXPECT("no more input", read(pair->slave, bytes, sizeof bytes), -1);
	EXPECT("told of nothing else", read(pair->master, bytes, sizeof bytes), -1);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct pair flushed = pair(TIOCPKT_FLUSHREAD), both = pair(TIOCPKT_FLUSHREAD | TIOCPKT_FLUSHWRITE);
	struct pair stops = pair(TIOCPKT_STOP), starts = pair(TIOCPKT_START), typed = pair(TIOCPKT_STOP);
	struct pair raw = pair(TIOCPKT_NOSTOP), cooked = pair(TIOCPKT_DOSTOP), modes = pair(TIOCPKT_IOCTL);
	struct pair quiet = pair(0);
	BUILD(tcflush(flushed.slave, TCIFLUSH));
	BUILD(tcflush(both.slave, TCIOFLUSH));
	put(&both, "written afterwards", "typed afterwards\n");
	put(&stops, "before", "typed\n");
	BUILD(tcflow(stops.slave, TCOOFF));
	BUILD(tcflow(starts.slave, TCOOFF));
	BUILD(tcflow(starts.slave, TCOON));
	put(&starts, "after", NULL);
	conform_write_all(typed.master, "\x13", 1);
	conform_sleep_ms(50);
	change(raw.slave, IXON, 0);
	put(&raw, "raw", "\x13 is a letter\n");
	change(cooked.slave, IXON, 0);
	change(cooked.slave, IXON, 0);
	put(&cooked, NULL, "typed\n");
	change(modes.slave, 0, EXTPROC);
	change(modes.slave, 0, EXTPROC);
	put(&modes, "output", "input\n");
	put(&quiet, "no status", NULL);
	conform_sleep_ms(50);

	conform_ready();
	conform_wait();

	const struct pair *all[] = {&flushed, &both, &stops, &starts, &typed, &raw, &cooked, &modes};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		check(all[i]);
	char bytes[64];
	EXPECT("bytes without a status", read(quiet.master, bytes, sizeof bytes), 10);
	EXPECT_ERROR("output that stands", write(stops.slave, "x", 1), EAGAIN);
	EXPECT_ERROR("output that was stopped by ^S", write(typed.slave, "x", 1), EAGAIN);
	conform_write_all(typed.master, "\x11", 1);
	conform_sleep_ms(50);
	conform_write_all(typed.slave, "x", 1);
	conform_pass();
}
