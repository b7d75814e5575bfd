/* A pseudo-terminal with another line discipline than N_TTY. */
#include "conform.h"
#include <sys/ioctl.h>
#include <termios.h>

/* N_NULL (include/uapi/linux/tty.h), which takes nothing. */
enum { NO_DISCIPLINE = 27 };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int master = (int)BUILD(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
	BUILD(grantpt(master));
	BUILD(unlockpt(master));
	int slave = (int)BUILD(open(ptsname(master), O_RDWR | O_NOCTTY)), discipline = NO_DISCIPLINE;
	if (ioctl(slave, TIOCSETD, &discipline) != 0)
		conform_skip("this kernel has no other line discipline");
	conform_write_all(master, "kept\n", 5);
	conform_expect_refusal(getpid(), master);
	conform_ready();
	conform_wait();
	BUILD(ioctl(slave, TIOCGETD, &discipline));
	EXPECT("line discipline", discipline, NO_DISCIPLINE);
	discipline = 0;
	BUILD(ioctl(slave, TIOCSETD, &discipline));
	conform_expect_bytes("what waits for another one", slave, "kept\n");
	conform_pass();
}
