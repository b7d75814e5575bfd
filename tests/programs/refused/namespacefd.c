/* A descriptor of a namespace. */
#include "conform.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = (int)BUILD(open("/proc/self/ns/uts", O_RDONLY));
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	struct stat status, now;
	BUILD(fstat(fd, &status));
	BUILD(stat("/proc/self/ns/uts", &now));
	EXPECT("inode of the namespace", status.st_ino, now.st_ino);
	conform_pass();
}
