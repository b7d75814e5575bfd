/* Descriptors shared by dup and fork share offset and flags; files opened twice do not. */
#include "conform.h"

static int file, own;

static void child(void *unused)
{
	(void)unused;
	int again = BUILD(open(conform_path("file"), O_RDONLY));
	BUILD(lseek(again, 8, SEEK_SET));
	conform_mark("born");
	conform_wait();
	conform_await("moved");
	EXPECT("offset that the parent moved", lseek(file, 0, SEEK_CUR), 5);
	EXPECT("flag that the parent set", fcntl(file, F_GETFL) & O_APPEND, O_APPEND);
	EXPECT("offset of an own open file", lseek(again, 0, SEEK_CUR), 8);
	BUILD(lseek(own, 2, SEEK_SET));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	file = BUILD(open(conform_path("file"), O_RDWR | O_CREAT, 0600));
	conform_write_all(file, "0123456789", 10);
	own = BUILD(dup(file));
	int other = BUILD(open(conform_path("file"), O_RDWR));
	BUILD(fcntl(own, F_SETFD, FD_CLOEXEC));
	pid_t process = conform_spawn(child, NULL);
	conform_await("born");
	conform_ready();
	conform_wait();
	EXPECT("offset", lseek(own, 0, SEEK_CUR), 10);
	EXPECT("close-on-exec is the descriptor's own", fcntl(own, F_GETFD), FD_CLOEXEC);
	EXPECT("close-on-exec of the first", fcntl(file, F_GETFD), 0);
	BUILD(lseek(own, 5, SEEK_SET));
	EXPECT("offset of the duplicate", lseek(file, 0, SEEK_CUR), 5);
	EXPECT("offset of a file opened apart", lseek(other, 0, SEEK_CUR), 0);
	BUILD(fcntl(own, F_SETFL, O_APPEND));
	conform_mark("moved");
	conform_join(process);
	EXPECT("offset that the child moved", lseek(file, 0, SEEK_CUR), 2);
	conform_pass();
}
