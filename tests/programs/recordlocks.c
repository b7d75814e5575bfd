/*
 * Record locks of processes (fcntl, F_SETLK): ranges of both kinds, on a file that is open twice, is mapped and was
 * inherited; a process that waits for one in F_SETLKW; locks of open file descriptions beside them.
 */
#include "conform.h"

enum { PAGE = CONFORM_PAGE };

static int lock(int fd, int command, int type, off_t start, off_t length)
{
	struct flock wanted = { .l_type = (short)type, .l_whence = SEEK_SET, .l_start = start, .l_len = length };
	return fcntl(fd, command, &wanted);
}

/* The type of the lock that keeps this process from writing there, and whose it is. */
static void expect_lock(const char *what, int fd, off_t start, off_t length, int type, pid_t owner)
{
	struct flock found = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = length };
	BUILD(fcntl(fd, F_GETLK, &found));
	EXPECT(what, found.l_type, type);
	if (type != F_UNLCK) {
		EXPECT(what, found.l_start, start);
		EXPECT(what, found.l_len, length);
		EXPECT("owner of the lock", found.l_pid, owner);
	}
}

static void waiter(void *unused)
{
	(void)unused;
	int fd = (int)BUILD(open(conform_path("locked"), O_RDWR));
	BUILD(lock(fd, F_SETLK, F_WRLCK, 900, 10));
	conform_mark("waits");
	while (lock(fd, F_SETLKW, F_WRLCK, 0, 10) != 0)
		EXPECT("errno of F_SETLKW", errno, EINTR);
	conform_mark("has-it");
	expect_lock("a lock of the parent's that was not given up", fd, 100, 50, F_WRLCK, getppid());
	expect_lock("a shared lock of the parent's", fd, 200, 5, F_RDLCK, getppid());
	expect_lock("a lock of the parent's up to the end", fd, 5000, 0, F_WRLCK, getppid());
	expect_lock("no lock", fd, 300, 100, F_UNLCK, 0);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	static char contents[PAGE];
	int fd = (int)BUILD(open(conform_path("locked"), O_RDWR | O_CREAT | O_EXCL, 0600));
	conform_write_all(fd, contents, sizeof contents);
	conform_map(PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	conform_map(PAGE, PROT_READ, MAP_PRIVATE, fd);
	int again = (int)BUILD(open(conform_path("locked"), O_RDWR));
	BUILD(lock(fd, F_SETLK, F_WRLCK, 0, 10));
	BUILD(lock(fd, F_SETLK, F_WRLCK, 100, 50));
	BUILD(lock(again, F_SETLK, F_RDLCK, 200, 5));
	BUILD(lock(again, F_SETLK, F_WRLCK, 5000, 0));
	BUILD(lock(again, F_OFD_SETLK, F_WRLCK, 700, 7));
	pid_t child = conform_spawn(waiter, NULL);
	conform_await("waits");
	/* Long enough for the waiter to be in the call; it passes if it is not, too. */
	conform_sleep_ms(20);
	conform_ready();
	conform_wait();
	conform_sleep_ms(100);
	EXPECT("the waiter has a lock that was not given up", access(conform_path("has-it"), F_OK), -1);
	expect_lock("the child's own lock", fd, 900, 10, F_WRLCK, child);
	EXPECT_ERROR("a lock of an open file description", lock(fd, F_SETLK, F_WRLCK, 700, 7), EAGAIN);
	BUILD(lock(fd, F_SETLK, F_UNLCK, 0, 10));
	conform_join(child);
	EXPECT("the waiter has got the lock", access(conform_path("has-it"), F_OK), 0);
	conform_pass();
}
