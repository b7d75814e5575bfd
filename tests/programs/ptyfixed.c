/*
 * A pseudoterminal some modes of which nobody can change (TIOCSLCKTRMIOS), with bytes in both directions.
 * conform: root
 */
#include "conform.h"
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>

/* struct termios of the kernel */
struct modes {
	unsigned int words[4];
	unsigned char rest[32];
};

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int master = (int)BUILD(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
	BUILD(grantpt(master));
	BUILD(unlockpt(master));
	int slave = (int)BUILD(open(ptsname(master), O_RDWR | O_NOCTTY));
	struct termios modes, other;
	struct modes fixed, found;
	memset(&fixed, 0, sizeof fixed);
	fixed.words[0] = ICRNL;
	fixed.words[3] = ECHO | ICANON;
	fixed.rest[1 + VINTR] = 1;
	BUILD(tcgetattr(slave, &modes));
	modes.c_lflag &= ~(tcflag_t)ECHO;
	BUILD(tcsetattr(slave, TCSANOW, &modes));
	conform_write_all(master, "a line\rand one that is", 22);
	conform_write_all(slave, "to the master", 13);
	BUILD(ioctl(slave, TIOCSLCKTRMIOS, &fixed));
	conform_sleep_ms(50);

	conform_ready();
	conform_wait();

	memset(&found, 0, sizeof found);
	BUILD(ioctl(slave, TIOCGLCKTRMIOS, &found));
	EXPECT("fixed modes", memcmp(&found, &fixed, 36), 0);
	BUILD(tcgetattr(slave, &modes));
	other = modes;
	other.c_lflag ^= ECHO | ICANON | NOFLSH;
	other.c_cc[VINTR] = 7;
	other.c_cc[VQUIT] = 8;
	BUILD(tcsetattr(slave, TCSANOW, &other));
	BUILD(tcgetattr(slave, &other));
	EXPECT("modes that are fixed", other.c_lflag, modes.c_lflag ^ NOFLSH);
	EXPECT("a character that is", other.c_cc[VINTR], 3);
	EXPECT("another", other.c_cc[VQUIT], 8);
	conform_expect_bytes("bytes to the slave", slave, "a line\n");
	conform_write_all(master, " begun\r", 7);
	conform_expect_bytes("bytes to the slave", slave, "and one that is begun\n");
	conform_expect_bytes("bytes to the master", master, "to the master");
	conform_pass();
}
