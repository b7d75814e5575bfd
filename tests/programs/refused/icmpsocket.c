/* An ICMP socket, as ping(8) has it without privilege. */
#include "conform.h"
#include <netinet/in.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = socket(AF_INET, SOCK_DGRAM, IPPROTO_ICMP);
	if (fd < 0 && (errno == EACCES || errno == EPROTONOSUPPORT))
		conform_skip("ICMP sockets are not for this group (net.ipv4.ping_group_range)");
	BUILD(fd);
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	int protocol = 0;
	socklen_t size = sizeof protocol;
	BUILD(getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &size));
	EXPECT("protocol", protocol, IPPROTO_ICMP);
	conform_pass();
}
