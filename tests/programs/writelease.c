/*
 * Leases on files (F_SETLEASE) for writing, which nobody else may have open: on a file of the session directory that is at some
 * offset, and on one outside of it.
 *
 * conform: unrehearsable
 */
#include "conform.h"

static volatile sig_atomic_t told;

static void tell(int signal)
{
	told = signal;
}

static int leased(const char *path)
{
	int fd = (int)BUILD(open(path, O_RDWR | O_CREAT, 0600));
	conform_write_all(fd, "content", 7);
	conform_lease(fd, F_WRLCK);
	return fd;
}

int main(int argc, char **argv)
{
	char elsewhere[128], bytes[16] = "";
	conform_start(argc, argv);
	signal(SIGIO, tell);
	snprintf(elsewhere, sizeof elsewhere, "/var/tmp/writelease-%s", conform_unique());
	int inside = leased(conform_path("leased")), outside = leased(elsewhere);
	BUILD(lseek(inside, 3, SEEK_SET));
	conform_ready();
	conform_wait();
	EXPECT("nobody was told anything", told, 0);
	EXPECT("lease", fcntl(inside, F_GETLEASE), F_WRLCK);
	EXPECT("lease on a file outside", fcntl(outside, F_GETLEASE), F_WRLCK);
	EXPECT("bytes from where it was", read(inside, bytes, sizeof bytes), 4);
	EXPECT_TEXT("what they are", bytes, "tent");
	EXPECT_ERROR("opening for reading", open(elsewhere, O_RDONLY | O_NONBLOCK), EWOULDBLOCK);
	EXPECT("signal of a break", told, SIGIO);
	BUILD(fcntl(outside, F_SETLEASE, F_UNLCK));
	BUILD(unlink(elsewhere));
	conform_pass();
}
