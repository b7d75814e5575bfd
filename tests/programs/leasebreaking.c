/*
 * Leases on files (F_SETLEASE) that somebody is waiting for: two for reading, whose file is to be written to, and one for writing,
 * whose file is to be read. Their holder has been told, once of each, and takes its time.
 *
 * conform: unrehearsable
 */
#include "conform.h"

static volatile sig_atomic_t told;

static void tell(int signal)
{
	(void)signal;
	told++;
}

static int leased(const char *path, int flags, int kind)
{
	int fd = (int)BUILD(open(path, flags));
	BUILD(fcntl(fd, F_SETSIG, SIGRTMIN + 2));
	conform_lease(fd, kind);
	return fd;
}

static void make(const char *path)
{
	int fd = (int)BUILD(open(path, O_WRONLY | O_CREAT, 0600));
	conform_write_all(fd, "content", 7);
	BUILD(close(fd));
}

int main(int argc, char **argv)
{
	char of_reader[128], of_writer[128];
	conform_start(argc, argv);
	signal(SIGRTMIN + 2, tell);
	snprintf(of_reader, sizeof of_reader, "/var/tmp/leaseread-%s", conform_unique());
	snprintf(of_writer, sizeof of_writer, "/var/tmp/leasewrite-%s", conform_unique());
	make(of_reader);
	make(of_writer);
	int reader = leased(of_reader, O_RDONLY, F_RDLCK), other = leased(of_reader, O_RDONLY, F_RDLCK);
	int writer = leased(of_writer, O_RDWR, F_WRLCK);
	EXPECT_ERROR("opening for writing", open(of_reader, O_WRONLY | O_NONBLOCK), EWOULDBLOCK);
	EXPECT_ERROR("opening for reading", open(of_writer, O_RDONLY | O_NONBLOCK), EWOULDBLOCK);
	EXPECT("signals", told, 3);
	conform_ready();
	conform_wait();
	EXPECT("nobody was told again", told, 3);
	EXPECT("what is to be left for a reader's file", fcntl(reader, F_GETLEASE), F_UNLCK);
	EXPECT("what is to be left for the other reader's", fcntl(other, F_GETLEASE), F_UNLCK);
	EXPECT("what is to be left for a writer's file", fcntl(writer, F_GETLEASE), F_RDLCK);
	EXPECT_ERROR("opening for writing, still", open(of_reader, O_WRONLY | O_NONBLOCK), EWOULDBLOCK);
	EXPECT_ERROR("opening for reading, still", open(of_writer, O_RDONLY | O_NONBLOCK), EWOULDBLOCK);
	BUILD(fcntl(reader, F_SETLEASE, F_UNLCK));
	EXPECT_ERROR("opening for writing, of one left", open(of_reader, O_WRONLY | O_NONBLOCK), EWOULDBLOCK);
	BUILD(fcntl(other, F_SETLEASE, F_UNLCK));
	BUILD(close((int)BUILD(open(of_reader, O_WRONLY | O_NONBLOCK))));
	BUILD(fcntl(writer, F_SETLEASE, F_UNLCK));
	BUILD(close((int)BUILD(open(of_writer, O_RDONLY | O_NONBLOCK))));
	EXPECT("signals in the end", told, 3);
	BUILD(unlink(of_reader));
	BUILD(unlink(of_writer));
	conform_pass();
}
