/* A terminal whose master is closed, beside others that are open: it has no number any more that they could need. */
#include "conform.h"

static int make(int *slave)
{
	int master = (int)BUILD(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
	BUILD(grantpt(master));
	BUILD(unlockpt(master));
	*slave = (int)BUILD(open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC));
	return master;
}

int main(int argc, char **argv)
{
	enum { PAIRS = 3, CLOSED = 1 };
	conform_start(argc, argv);
	int masters[PAIRS], slaves[PAIRS];
	char bytes[8];
	for (int i = 0; i < PAIRS; i++)
		masters[i] = make(&slaves[i]);
	BUILD(close(masters[CLOSED]));
	conform_ready();
	conform_wait();
	for (int i = 0; i < PAIRS; i++) {
		if (i == CLOSED)
			continue;
		conform_write_all(masters[i], "typed\n", 6);
		EXPECT("what was typed", read(slaves[i], bytes, sizeof bytes), 6);
	}
	EXPECT("end of a terminal that is hung up", read(slaves[CLOSED], bytes, sizeof bytes), 0);
	EXPECT_ERROR("a terminal that is hung up", write(slaves[CLOSED], "x", 1), EIO);
	conform_pass();
}
