/* An open file of /proc: what it says is made when it is read, by the kernel of one machine. */
#include "conform.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = (int)BUILD(open("/proc/self/status", O_RDONLY));
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	char first;
	EXPECT("bytes read", pread(fd, &first, 1, 0), 1);
	EXPECT("the first byte", first, 'N');
	conform_pass();
}
