/* An address of IPv6 beside its own, of the loopback device in a network namespace of a process's own. */
#include "../namespaces.h"
#include <arpa/inet.h>

/* struct in6_ifreq of linux/ipv6.h, which the C library's headers do not go with. */
struct address {
	struct in6_addr address;
	uint32_t length;
	int device;
};

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	become_inside(0, CLONE_NEWNET);
	loopback(true);
	int fd = socket(AF_INET6, SOCK_DGRAM, 0);
	if (fd < 0)
		conform_skip("there is no IPv6 here");
	struct address address = { .length = 128, .device = (int)if_nametoindex("lo") };
	inet_pton(AF_INET6, "fd00::1", &address.address);
	BUILD(ioctl(fd, SIOCSIFADDR, &address));
	BUILD(close(fd));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	conform_pass();
}
