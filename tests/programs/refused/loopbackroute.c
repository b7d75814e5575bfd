/* A route to everywhere in a network namespace of a process's own, by its loopback device. */
#include "../namespaces.h"
#include <arpa/inet.h>
#include <net/route.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	become_inside(0, CLONE_NEWNET);
	loopback(true);
	struct rtentry route = { .rt_flags = RTF_UP, .rt_dev = "lo" };
	struct sockaddr_in any = { .sin_family = AF_INET };
	memcpy(&route.rt_dst, &any, sizeof any);
	memcpy(&route.rt_genmask, &any, sizeof any);
	int fd = (int)BUILD(socket(AF_INET, SOCK_DGRAM, 0));
	BUILD(ioctl(fd, SIOCADDRT, &route));
	BUILD(close(fd));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_pass();
}
