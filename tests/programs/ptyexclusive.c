/* A pseudo-terminal in exclusive mode (TIOCEXCL): nobody but root can open it once more; with bytes at both ends. */
#include "conform.h"
#include <sys/ioctl.h>
#include <termios.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int master = (int)BUILD(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
	BUILD(grantpt(master));
	BUILD(unlockpt(master));
	int slave = (int)BUILD(open(ptsname(master), O_RDWR | O_NOCTTY)), exclusive;
	struct termios raw;
	BUILD(tcgetattr(slave, &raw));
	cfmakeraw(&raw);
	BUILD(tcsetattr(slave, TCSANOW, &raw));
	conform_write_all(master, "to the slave", 12);
	conform_write_all(slave, "to the master", 13);
	BUILD(ioctl(slave, TIOCEXCL));

	conform_ready();
	conform_wait();

	BUILD(ioctl(slave, TIOCGEXCL, &exclusive));
	EXPECT("exclusive mode", exclusive, 1);
	if (geteuid() != 0)
		EXPECT_ERROR("another open", open(ptsname(master), O_RDWR | O_NOCTTY), EBUSY);
	conform_expect_bytes("bytes to the slave", slave, "to the slave");
	conform_expect_bytes("bytes to the master", master, "to the master");
	BUILD(ioctl(slave, TIOCNXCL));
	BUILD(close((int)BUILD(open(ptsname(master), O_RDWR | O_NOCTTY))));
	conform_pass();
}
