/* Pairs of pseudo-terminals: settings, window size, bytes waiting at both ends, a line half typed. */
#include "conform.h"
#include <sys/ioctl.h>
#include <termios.h>

static void open_pair(int *master, int *slave)
{
	*master = BUILD(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
	BUILD(grantpt(*master));
	BUILD(unlockpt(*master));
	*slave = BUILD(open(ptsname(*master), O_RDWR | O_NOCTTY));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int raw_master, raw_slave, line_master, line_slave;
	struct termios set, found;
	struct winsize size = { 43, 132, 7, 9 }, seen;
	open_pair(&raw_master, &raw_slave);
	open_pair(&line_master, &line_slave);
	BUILD(tcgetattr(raw_slave, &set));
	cfmakeraw(&set);
	set.c_cc[VMIN] = 3;
	set.c_cc[VINTR] = 7;
	set.c_lflag |= NOFLSH;
	cfsetspeed(&set, B9600);
	BUILD(tcsetattr(raw_slave, TCSANOW, &set));
	BUILD(tcgetattr(raw_slave, &set));
	BUILD(ioctl(raw_master, TIOCSWINSZ, &size));
	conform_write_all(raw_master, "to the slave", 12);
	conform_write_all(raw_slave, "to the master", 13);
	conform_write_all(line_master, "whole line\nhalf a ", 18);
	conform_expect_bytes("echo", line_master, "whole line\r\nhalf a ");
	BUILD(fchmod(raw_slave, 0604));
	if (geteuid() == 0)
		BUILD(fchown(raw_slave, 1234, 4321));
	struct stat owned, owner;
	BUILD(fstat(raw_slave, &owned));
	conform_ready();
	conform_wait();
	BUILD(fstat(raw_slave, &owner));
	EXPECT("mode of a slave", owner.st_mode, owned.st_mode);
	EXPECT("user of a slave", owner.st_uid, owned.st_uid);
	EXPECT("group of a slave", owner.st_gid, owned.st_gid);
	BUILD(tcgetattr(raw_slave, &found));
	EXPECT("input flags", found.c_iflag, set.c_iflag);
	EXPECT("output flags", found.c_oflag, set.c_oflag);
	EXPECT("control flags", found.c_cflag, set.c_cflag);
	EXPECT("local flags", found.c_lflag, set.c_lflag);
	EXPECT("control characters", memcmp(found.c_cc, set.c_cc, sizeof set.c_cc), 0);
	BUILD(ioctl(raw_slave, TIOCGWINSZ, &seen));
	EXPECT("window size", memcmp(&seen, &size, sizeof size), 0);
	conform_expect_bytes("bytes to the slave", raw_slave, "to the slave");
	conform_expect_bytes("bytes to the master", raw_master, "to the master");
	conform_expect_bytes("whole line", line_slave, "whole line\n");
	conform_expect_nothing("half a line", line_slave);
	conform_write_all(line_master, "line\n", 5);
	conform_expect_bytes("line typed in two halves", line_slave, "half a line\n");
	conform_write_all(line_slave, "a\n", 2);
	conform_expect_bytes("echo and output", line_master, "line\r\na\r\n");
	EXPECT("close-on-exec", fcntl(raw_master, F_GETFD), FD_CLOEXEC);
	close(raw_slave);
	char byte;
	EXPECT_ERROR("master whose slave is closed", read(raw_master, &byte, 1), EIO);
	conform_pass();
}
