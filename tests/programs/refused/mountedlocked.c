/* A record lock of a process's (fcntl) on a file that is open in a file system in memory that it has mounted for itself. */
#include "../namespaces.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	mount_inside("mounted");
	int file = (int)BUILD(open(conform_path("mounted/file"), O_RDWR | O_CREAT, 0600));
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 5 };
	BUILD(fcntl(file, F_SETLK, &lock));
	conform_expect_refusal(getpid(), file);
	conform_ready();
	conform_wait();
	lock.l_type = F_UNLCK;
	BUILD(fcntl(file, F_SETLK, &lock));
	conform_pass();
}
