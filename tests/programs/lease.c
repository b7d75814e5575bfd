/*
 * Leases on files (F_SETLEASE) for reading: on a file of the session directory, on one outside of it and on one that is deleted,
 * with the signal that tells of a break, shared with a child.
 */
#include "conform.h"

static volatile sig_atomic_t told, where;

static void tell(int signal, siginfo_t *info, void *context)
{
	(void)context;
	told = signal;
	where = info->si_fd;
}

static int leased(const char *path, int flags)
{
	int fd = (int)BUILD(open(path, O_WRONLY | O_CREAT, 0600));
	conform_write_all(fd, "content", 7);
	BUILD(close(fd));
	fd = (int)BUILD(open(path, flags));
	BUILD(fcntl(fd, F_SETSIG, SIGRTMIN + 2));
	conform_lease(fd, flags == O_RDONLY ? F_RDLCK : F_WRLCK);
	return fd;
}

static void child(void *argument)
{
	conform_mark("born");
	conform_wait();
	EXPECT("lease as the child sees it", fcntl(*(int *)argument, F_GETLEASE), F_RDLCK);
}

int main(int argc, char **argv)
{
	struct sigaction action = { .sa_sigaction = tell, .sa_flags = SA_SIGINFO };
	char elsewhere[128], bytes[16];
	conform_start(argc, argv);
	BUILD(sigaction(SIGRTMIN + 2, &action, NULL));
	snprintf(elsewhere, sizeof elsewhere, "/var/tmp/lease-%s", conform_unique());
	int inside = leased(conform_path("leased"), O_RDONLY), outside = leased(elsewhere, O_RDONLY);
	int deleted = leased(conform_path("deleted"), O_RDONLY);
	BUILD(unlink(conform_path("deleted")));
	pid_t process = conform_spawn(child, &inside);
	conform_await("born");
	conform_ready();
	conform_wait();
	EXPECT("nobody was told anything", told, 0);
	EXPECT("lease", fcntl(inside, F_GETLEASE), F_RDLCK);
	EXPECT("lease on a file outside", fcntl(outside, F_GETLEASE), F_RDLCK);
	EXPECT("lease on a deleted file", fcntl(deleted, F_GETLEASE), F_RDLCK);
	conform_join(process);
	EXPECT_ERROR("opening for writing", open(elsewhere, O_WRONLY | O_NONBLOCK), EWOULDBLOCK);
	EXPECT("signal of a break", told, SIGRTMIN + 2);
	EXPECT("descriptor of a break", where, outside);
	BUILD(fcntl(outside, F_SETLEASE, F_UNLCK));
	BUILD(close((int)BUILD(open(elsewhere, O_WRONLY | O_NONBLOCK))));
	EXPECT("bytes", read(inside, bytes, sizeof bytes), 7);
	BUILD(unlink(elsewhere));
	conform_pass();
}
