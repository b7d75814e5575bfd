/* A VSOCK socket, of a virtual machine and its host. */
#include "conform.h"
#include <sys/socket.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = socket(AF_VSOCK, SOCK_STREAM, 0);
	if (fd < 0)
		conform_skip("this kernel has none");
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	EXPECT("descriptor is still open", fcntl(fd, F_GETFD) >= 0, 1);
	conform_pass();
}
