/* A lease on a file (F_SETLEASE). */
#include "conform.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = (int)BUILD(open(conform_path("leased"), O_RDWR | O_CREAT, 0600));
	int held = fcntl(fd, F_SETLEASE, F_WRLCK);
	if (held != 0 && errno == EINVAL)
		conform_skip("this file system has no leases");
	BUILD(held);
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	EXPECT("lease", fcntl(fd, F_GETLEASE), F_WRLCK);
	conform_pass();
}
