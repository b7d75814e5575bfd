/* A pseudoterminal in packet mode (TIOCPKT) with a status that is not read yet. */
#include "conform.h"
#include <sys/ioctl.h>
#include <termios.h>

int main(int argc, char **argv)
{
	int yes = 1;
	char status = 0;
	conform_start(argc, argv);
	int master = (int)BUILD(posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK));
	BUILD(grantpt(master));
	BUILD(unlockpt(master));
	int slave = (int)BUILD(open(ptsname(master), O_RDWR | O_NOCTTY));
	BUILD(ioctl(master, TIOCPKT, &yes));
	BUILD(tcflush(slave, TCIFLUSH));
	conform_expect_refusal(getpid(), master);
	conform_ready();
	conform_wait();
	EXPECT("bytes of a status", read(master, &status, 1), 1);
	EXPECT("what it tells", status & TIOCPKT_FLUSHREAD, TIOCPKT_FLUSHREAD);
	conform_pass();
}
