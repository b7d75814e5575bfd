/* Signals of input (O_ASYNC, F_SETSIG, F_SETOWN), with the descriptors that they are about: of a pipe, of a socket pair. */
#include "conform.h"
#include <sys/socket.h>

static volatile sig_atomic_t count, where;

static void tell(int signal, siginfo_t *info, void *context)
{
	(void)signal;
	(void)context;
	where = info->si_fd;
	count++;
}

static void watch(int fd)
{
	BUILD(fcntl(fd, F_SETSIG, SIGRTMIN + 3));
	BUILD(fcntl(fd, F_SETOWN, getpid()));
	BUILD(fcntl(fd, F_SETFL, BUILD(fcntl(fd, F_GETFL)) | O_ASYNC));
}

static void expect_from(const char *what, int to, int from)
{
	count = 0;
	conform_write_all(to, "x", 1);
	while (count == 0)
		conform_sleep_ms(1);
	EXPECT(what, where, from);
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = tell, .sa_flags = SA_SIGINFO };
	int ends[2], pair[2], before[2];
	conform_start(argc, argv);
	BUILD(sigaction(SIGRTMIN + 3, &action, NULL));
	BUILD(pipe(before));
	BUILD(pipe(ends));
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	BUILD(close(before[0]));
	BUILD(close(before[1]));
	watch(ends[0]);
	watch(pair[0]);
	conform_ready();
	conform_wait();
	EXPECT("signals before any input", count, 0);
	expect_from("descriptor of a pipe", ends[1], ends[0]);
	expect_from("descriptor of a socket", pair[1], pair[0]);
	conform_pass();
}
