/*
 * A raw socket.
 *
 * conform: root
 */
#include "conform.h"
#include <netinet/in.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = socket(AF_INET, SOCK_RAW, IPPROTO_ICMP);
	if (fd < 0 && errno == EPERM)
		conform_skip("raw sockets are forbidden here");
	BUILD(fd);
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	int kind = 0;
	socklen_t size = sizeof kind;
	BUILD(getsockopt(fd, SOL_SOCKET, SO_TYPE, &kind, &size));
	EXPECT("kind of socket", kind, SOCK_RAW);
	conform_pass();
}
