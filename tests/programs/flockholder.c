/*
 * flock(2): whom /proc/locks names. Of a description that a child shares that is whoever took the lock, also when that process
 * has closed the file, but not when it has ended.
 */
#include "conform.h"
#include <sys/file.h>

static int own, inherited, of_ended;

static void takes(void *unused)
{
	(void)unused;
	BUILD(flock(of_ended, LOCK_EX));
}

static int holder_of(int fd)
{
	char line[256], path[64];
	int holder = -1;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	FILE *info = fopen(path, "r");
	if (info == NULL)
		conform_fail("%s: %m", path);
	while (fgets(line, sizeof line, info) != NULL)
		sscanf(line, "lock: %*d: FLOCK ADVISORY WRITE %d", &holder);
	fclose(info);
	return holder;
}

static void has(void *unused)
{
	(void)unused;
	pid_t parent = getppid();
	close(own);
	conform_mark("has");
	conform_wait();
	EXPECT("who holds the lock of a file that it has closed", holder_of(inherited), parent);
	int again = BUILD(open(conform_path("inherited"), O_RDWR));
	EXPECT_ERROR("another lock", flock(again, LOCK_EX | LOCK_NB), EWOULDBLOCK);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	own = BUILD(open(conform_path("own"), O_RDWR | O_CREAT, 0600));
	inherited = BUILD(open(conform_path("inherited"), O_RDWR | O_CREAT, 0600));
	of_ended = BUILD(open(conform_path("ended"), O_RDWR | O_CREAT, 0600));
	BUILD(flock(own, LOCK_EX));
	BUILD(flock(inherited, LOCK_EX));
	conform_join(conform_spawn(takes, NULL));
	pid_t child = conform_spawn(has, NULL);
	conform_await("has");
	close(inherited);
	conform_ready();
	conform_wait();
	EXPECT("who holds a lock", holder_of(own), getpid());
	int again = BUILD(open(conform_path("ended"), O_RDWR));
	EXPECT_ERROR("a lock beside that of an ended process", flock(again, LOCK_EX | LOCK_NB), EWOULDBLOCK);
	conform_join(child);
	conform_pass();
}
