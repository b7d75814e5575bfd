/* A session with a controlling terminal: foreground group, /dev/tty, and ^C that reaches the foreground alone. */
#include "conform.h"
#include <sys/ioctl.h>
#include <termios.h>

static int master;
static volatile sig_atomic_t interrupted;

static void interrupt(int signal) { (void)signal; interrupted++; }

/* Not the leader alone has it: its children do, too. */
static void expect_terminal(void)
{
	int tty = BUILD(open("/dev/tty", O_RDWR));
	EXPECT("foreground group as a child sees it", tcgetpgrp(tty), getpgrp());
	close(tty);
}

static void foreground(void *unused)
{
	(void)unused;
	struct sigaction action = { .sa_handler = interrupt };
	BUILD(sigaction(SIGINT, &action, NULL));
	conform_await("in the foreground");
	expect_terminal();
	conform_mark("foreground");
	conform_wait();
	conform_await("typed");
	for (int i = 0; i < 500 && !interrupted; i++)
		conform_sleep_ms(5);
	EXPECT("interrupts in the foreground group", interrupted, 1);
	expect_terminal();
}

static void leader(void *unused)
{
	(void)unused;
	struct sigaction action = { .sa_handler = interrupt };
	pid_t self = BUILD(setsid());
	int slave = BUILD(open(ptsname(master), O_RDWR));
	BUILD(ioctl(slave, TIOCSCTTY, 0));
	close(master);
	signal(SIGTTOU, SIG_IGN);
	BUILD(sigaction(SIGINT, &action, NULL));
	pid_t child = conform_spawn(foreground, NULL);
	BUILD(setpgid(child, child));
	BUILD(tcsetpgrp(slave, child));
	conform_mark("in the foreground");
	int tty = BUILD(open("/dev/tty", O_RDWR));
	conform_await("foreground");
	conform_mark("leader");
	conform_wait();
	EXPECT("session of the terminal", tcgetsid(slave), self);
	EXPECT("foreground group", tcgetpgrp(slave), child);
	EXPECT("foreground group by /dev/tty", tcgetpgrp(tty), child);
	close(BUILD(open("/dev/tty", O_RDWR)));
	conform_join(child);
	EXPECT("interrupts in the background", interrupted, 0);
	conform_write_all(tty, "bye", 3);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	master = BUILD(posix_openpt(O_RDWR | O_NOCTTY));
	BUILD(grantpt(master));
	BUILD(unlockpt(master));
	pid_t child = conform_spawn(leader, NULL);
	conform_await("leader");
	conform_ready();
	conform_wait();
	conform_write_all(master, "\003", 1);
	conform_mark("typed");
	conform_expect_bytes("echo of ^C", master, "^C");
	conform_expect_bytes("what came through /dev/tty", master, "bye");
	conform_join(child);
	conform_pass();
}
