/*
 * A signalfd in an epoll instance wakes whoever waits there, also when the signal comes only after the restart. The kernel has the
 * registration listen to the signals of the process that made it (fs/signalfd.c, signalfd_poll). Here the signalfd has another number
 * by now: that under which it was registered is free, or something else's.
 */
#include "conform.h"
#include <sys/epoll.h>
#include <sys/signalfd.h>

enum { FREE = 7, TAKEN, SIGNALS };
static const int signals[] = { SIGUSR1, SIGURG };

static void add(int poll, int fd, uint64_t data)
{
	struct epoll_event event = { .events = EPOLLIN, .data.u64 = data };
	BUILD(epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event));
}

static int reader(int signal)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, signal);
	BUILD(sigprocmask(SIG_BLOCK, &set, NULL));
	return (int)BUILD(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
}

static void child(void *unused)
{
	(void)unused;
	int readers[] = { reader(SIGUSR1), reader(SIGURG) };
	int poll = (int)BUILD(epoll_create1(EPOLL_CLOEXEC));
	add(poll, readers[0], FREE);
	add(poll, readers[1], TAKEN);
	int moved[] = { (int)BUILD(fcntl(readers[0], F_DUPFD_CLOEXEC, 100)), (int)BUILD(fcntl(readers[1], F_DUPFD_CLOEXEC, 100)) };
	BUILD(close(readers[0]));
	BUILD(dup2(moved[0], readers[1]));
	conform_mark("waiting");
	for (int i = 0; i < SIGNALS - FREE; i++) {
		struct epoll_event event;
		struct signalfd_siginfo info;
		char name[16];
		EXPECT("signals that wake it", epoll_wait(poll, &event, 1, 30000), 1);
		EXPECT("what it is told by", event.data.u64, FREE + i);
		EXPECT("what is read", read(moved[i], &info, sizeof info), sizeof info);
		EXPECT("the signal", info.ssi_signo, signals[i]);
		snprintf(name, sizeof name, "woken%d", i);
		conform_mark(name);
	}
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t pid = conform_spawn(child, NULL);
	conform_await("waiting");
	conform_sleep_ms(10);

	conform_ready();
	conform_wait();

	for (int i = 0; i < SIGNALS - FREE; i++) {
		char name[16];
		BUILD(kill(pid, signals[i]));
		snprintf(name, sizeof name, "woken%d", i);
		conform_await(name);
	}
	conform_join(pid);
	conform_pass();
}
