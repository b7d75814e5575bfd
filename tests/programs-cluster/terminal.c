/*
 * A pseudo-terminal between two processes: terminal ROUNDS PACE
 * One leads a session on the terminal, reads lines in canonical mode, and answers each. At the end its line
 * is taken back (erase), it is interrupted from the keyboard, and it sees the end of its input. Their parent
 * waits: a process with children is no load, and goes where they go.
 */
#include "split.h"
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

static volatile sig_atomic_t interrupts;

static void interrupted(int signal)
{
	(void)signal;
	interrupts++;
}

static void check(void)
{
	struct winsize size;
	struct termios modes;
	MUST(ioctl(0, TIOCGWINSZ, &size));
	MUST(tcgetattr(0, &modes));
	if (size.ws_row != 33 || size.ws_col != 99)
		fail("the window is %d x %d", size.ws_row, size.ws_col);
	if (!(modes.c_lflag & ICANON) || !(modes.c_lflag & ISIG) || (modes.c_lflag & ECHO))
		fail("modes are %#x", (unsigned)modes.c_lflag);
	if (tcgetpgrp(0) != getpid() || getsid(0) != getpid())
		fail("the terminal is not the session's");
}

static void child(const char *path)
{
	MUST(setsid());
	int fd = (int)MUST(open(path, O_RDWR));
	MUST(ioctl(fd, TIOCSCTTY, 0));
	for (int i = 0; i < 3; i++)
		MUST(dup2(fd, i));
	if (fd > 2)
		close(fd);
	/* No SA_RESTART: the read below comes back. */
	struct sigaction action = { .sa_handler = interrupted };
	MUST(sigaction(SIGINT, &action, NULL));
	char line[256];
	for (long round = 0;;) {
		ssize_t length = read(0, line, sizeof line - 1);
		if (length < 0 && errno == EINTR) {
			dprintf(1, "interrupted %d\n", (int)interrupts);
			continue;
		}
		if (must(length, "read") == 0)
			break;
		line[length] = 0;
		check();
		unsigned long word;
		long said;
		if (sscanf(line, "line %ld %lx\n", &said, &word) != 2 || said != round)
			fail("\"%s\" came in round %ld", line, round);
		dprintf(1, "answer %ld %lx\n", round, (unsigned long)next_word(word));
		round++;
	}
	exit(6);
}

static void expect(FILE *terminal, const char *expected)
{
	char found[256];
	if (!fgets(found, sizeof found, terminal))
		fail("the terminal is closed where \"%s\" is due", expected);
	/* Output processing makes CR LF of the line's end, once. */
	if (strncmp(found, expected, strlen(expected)) || strcmp(found + strlen(expected), "\r\n"))
		fail("\"%s\" came where \"%s\" is due", found, expected);
}

static void type(int master, int slave, long rounds, long rest)
{
	FILE *terminal = fdopen(master, "r");
	if (!terminal)
		fail("fdopen");
	char text[128];
	uint64_t word = 5;
	for (long round = 0; round < rounds; round++) {
		word = next_word(word);
		snprintf(text, sizeof text, "line %ld %lx\n", round, (unsigned long)word);
		write_all(master, text, strlen(text));
		snprintf(text, sizeof text, "answer %ld %lx", round, (unsigned long)next_word(word));
		expect(terminal, text);
		if (round == 0)
			close(slave);
		pace(rest);
	}
	write_all(master, "\003", 1);
	expect(terminal, "interrupted 1");
	snprintf(text, sizeof text, "lime\177\177ne %ld 7\n", rounds);
	write_all(master, text, strlen(text));
	snprintf(text, sizeof text, "answer %ld %lx", rounds, (unsigned long)next_word(7));
	expect(terminal, text);
	write_all(master, "\004", 1);
	/* Hanging up would end the other one before it has seen that. */
	char byte;
	if (read(master, &byte, 1) > 0)
		fail("more comes from the terminal");
}

int main(int argc, char **argv)
{
	split_name = "terminal";
	if (argc != 3)
		fail("usage: terminal ROUNDS PACE");
	long rounds = number(argv[1]);
	int master = (int)MUST(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
	MUST(grantpt(master));
	MUST(unlockpt(master));
	char path[64];
	MUST(-ptsname_r(master, path, sizeof path));
	int slave = (int)MUST(open(path, O_RDWR | O_NOCTTY | O_CLOEXEC));
	struct winsize size = { .ws_row = 33, .ws_col = 99 };
	struct termios modes;
	MUST(ioctl(slave, TIOCSWINSZ, &size));
	MUST(tcgetattr(slave, &modes));
	modes.c_lflag &= ~(tcflag_t)(ECHO | ECHOE | ECHOK | ECHOCTL);
	MUST(tcsetattr(slave, TCSANOW, &modes));
	pid_t reader = (pid_t)MUST(fork());
	if (reader == 0) {
		close(master);
		close(slave);
		child(path);
	}
	pid_t typist = (pid_t)MUST(fork());
	if (typist == 0) {
		type(master, slave, rounds, number(argv[2]));
		_exit(0);
	}
	close(master);
	close(slave);
	say("started");
	int status;
	MUST(waitpid(reader, &status, 0));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 6)
		fail("the reader ended with %#x", (unsigned)status);
	join(typist);
	say("right");
	return 0;
}
