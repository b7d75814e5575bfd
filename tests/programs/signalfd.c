/* signalfd: its mask, and signals that wait to be read through it. */
#include "conform.h"
#include <sys/signalfd.h>

static void expect_read(const char *what, int fd, int signal, int value)
{
	struct signalfd_siginfo info;
	EXPECT(what, read(fd, &info, sizeof info), sizeof info);
	EXPECT(what, info.ssi_signo, signal);
	EXPECT(what, info.ssi_int, value);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	sigset_t set, one;
	struct signalfd_siginfo info;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGRTMIN + 1);
	sigemptyset(&one);
	sigaddset(&one, SIGUSR2);
	BUILD(sigprocmask(SIG_BLOCK, &set, NULL));
	BUILD(sigprocmask(SIG_BLOCK, &one, NULL));
	int many = BUILD(signalfd(-1, &set, SFD_NONBLOCK)), other = BUILD(signalfd(-1, &one, SFD_NONBLOCK | SFD_CLOEXEC));
	BUILD(sigqueue(getpid(), SIGUSR1, (union sigval){ .sival_int = 11 }));
	for (int i = 0; i < 3; i++)
		BUILD(sigqueue(getpid(), SIGRTMIN + 1, (union sigval){ .sival_int = 20 + i }));
	conform_ready();
	conform_wait();
	EXPECT_ERROR("signalfd of another signal", read(other, &info, sizeof info), EAGAIN);
	expect_read("SIGUSR1", many, SIGUSR1, 11);
	for (int i = 0; i < 3; i++)
		expect_read("queued signal", many, SIGRTMIN + 1, 20 + i);
	EXPECT_ERROR("empty signalfd", read(many, &info, sizeof info), EAGAIN);
	BUILD(sigqueue(getpid(), SIGUSR2, (union sigval){ .sival_int = 33 }));
	expect_read("SIGUSR2 sent afterwards", other, SIGUSR2, 33);
	conform_pass();
}
