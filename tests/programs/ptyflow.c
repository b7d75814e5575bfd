/*
 * Terminals whose output is stopped by tcflow(3), TCOOFF: ^Q does not start it, TCOON does; with bytes that the master has
 * not read, and without; and a master that has stopped what it writes itself.
 */
#include "conform.h"
#include <poll.h>
#include <termios.h>

struct pair {
	int master, slave;
};

static struct pair open_pair(void)
{
	struct pair pair;
	struct termios set;
	pair.master = BUILD(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
	BUILD(grantpt(pair.master));
	BUILD(unlockpt(pair.master));
	pair.slave = BUILD(open(ptsname(pair.master), O_RDWR | O_NOCTTY | O_NONBLOCK));
	BUILD(tcgetattr(pair.slave, &set));
	cfmakeraw(&set);
	set.c_iflag |= IXON;
	BUILD(tcsetattr(pair.slave, TCSANOW, &set));
	return pair;
}

static bool takes(int fd)
{
	struct pollfd set = { fd, POLLOUT, 0 };
	return BUILD(poll(&set, 1, 0)) == 1;
}

/* The kernel looks at what is typed in the background. */
static void type(struct pair pair, char byte)
{
	conform_write_all(pair.master, &byte, 1);
	conform_sleep_ms(20);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct pair empty = open_pair(), holding = open_pair(), typed = open_pair(), inward = open_pair();
	BUILD(tcflow(empty.slave, TCOOFF));
	conform_write_all(holding.slave, "before the stop", 15);
	BUILD(tcflow(holding.slave, TCOOFF));
	type(typed, 0x13);
	conform_write_all(inward.master, "typed before", 12);
	BUILD(tcflow(inward.master, TCOOFF));
	EXPECT("a stopped terminal takes bytes", takes(empty.slave), false);
	EXPECT("a stopped master takes bytes", takes(inward.master), false);
	conform_ready();
	conform_wait();
	EXPECT("stopped and empty: takes bytes", takes(empty.slave), false);
	EXPECT("stopped and holding: takes bytes", takes(holding.slave), false);
	EXPECT("stopped by a key: takes bytes", takes(typed.slave), false);
	EXPECT("stopped inward: takes bytes", takes(inward.master), false);
	EXPECT("inward, outward", takes(inward.slave), true);
	type(empty, 0x11);
	type(holding, 0x11);
	type(typed, 0x11);
	EXPECT("after ^Q, empty", takes(empty.slave), false);
	EXPECT("after ^Q, holding", takes(holding.slave), false);
	EXPECT("after ^Q, stopped by a key", takes(typed.slave), true);
	BUILD(tcflow(empty.slave, TCOON));
	BUILD(tcflow(holding.slave, TCOON));
	BUILD(tcflow(inward.master, TCOON));
	EXPECT("after TCOON, empty", takes(empty.slave), true);
	EXPECT("after TCOON, holding", takes(holding.slave), true);
	EXPECT("after TCOON, inward", takes(inward.master), true);
	conform_write_all(holding.slave, ", after it", 10);
	conform_expect_bytes("all output", holding.master, "before the stop, after it");
	conform_write_all(inward.master, ", and after", 11);
	conform_sleep_ms(20);
	conform_expect_bytes("all input", inward.slave, "typed before, and after");
	conform_pass();
}
