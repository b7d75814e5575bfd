/*
 * Datagrams of multicast groups that are not read yet: two sockets at one group's address and port, one that has left its
 * group since, and one of IPv6. Each gets its own once, in order and from its sender. One is bound to a device.
 */
#include "conform.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

static unsigned loopback;

static struct sockaddr_in group4(const char *text, in_port_t port)
{
	return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = port, .sin_addr.s_addr = inet_addr(text) };
}

static int member(struct sockaddr_in *at)
{
	int fd = (int)BUILD(socket(AF_INET, SOCK_DGRAM | SOCK_NONBLOCK, 0)), on = 1;
	socklen_t length = sizeof *at;
	BUILD(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	BUILD(conform_bind(fd, (struct sockaddr *)at, length));
	BUILD(getsockname(fd, (struct sockaddr *)at, &length));
	struct ip_mreqn join = { .imr_multiaddr = at->sin_addr, .imr_ifindex = (int)loopback };
	BUILD(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join));
	return fd;
}

static void expect(const char *what, int fd, const char *text, in_port_t sender)
{
	char got[32] = "";
	struct sockaddr_storage from;
	socklen_t length = sizeof from;
	BUILD(recvfrom(fd, got, sizeof got - 1, 0, (struct sockaddr *)&from, &length));
	EXPECT_TEXT(what, got, text);
	/* The port is at the same place in both families. */
	EXPECT(what, ntohs(((struct sockaddr_in *)&from)->sin_port), ntohs(sender));
}

static void expect_no_more(const char *what, int fd)
{
	char got;
	EXPECT_ERROR(what, recv(fd, &got, 1, 0), EAGAIN);
}

static in_port_t port_of(int fd)
{
	struct sockaddr_storage at;
	socklen_t length = sizeof at;
	BUILD(getsockname(fd, (struct sockaddr *)&at, &length));
	return ((struct sockaddr_in *)&at)->sin_port;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	loopback = if_nametoindex("lo");
	if (!loopback)
		conform_skip("no loopback interface");
	struct sockaddr_in at = group4("239.77.2.1", 0), other = group4("239.77.2.2", 0);
	int first = member(&at), second = member(&at), left = member(&other), off = 0;
	BUILD(setsockopt(second, SOL_SOCKET, SO_BINDTODEVICE, "lo", sizeof "lo"));
	struct sockaddr_in here = group4("127.0.0.1", 0);
	struct ip_mreqn by = { .imr_ifindex = (int)loopback, .imr_address = here.sin_addr };
	int sender = (int)BUILD(socket(AF_INET, SOCK_DGRAM, 0));
	BUILD(conform_bind(sender, (struct sockaddr *)&here, sizeof here));
	BUILD(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, &by, sizeof by));
	BUILD(sendto(sender, "both", 4, 0, (struct sockaddr *)&at, sizeof at));
	BUILD(sendto(sender, "left", 4, 0, (struct sockaddr *)&other, sizeof other));
	expect("taken before", first, "both", port_of(sender));
	BUILD(sendto(sender, "again", 5, 0, (struct sockaddr *)&at, sizeof at));
	struct ip_mreqn leave = { .imr_multiaddr = other.sin_addr, .imr_ifindex = (int)loopback };
	BUILD(setsockopt(left, IPPROTO_IP, IP_DROP_MEMBERSHIP, &leave, sizeof leave));
	/* What it has sent came back to this machine; what it sends from now on does not. */
	BUILD(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_LOOP, &off, sizeof off));

	int member6 = -1, sender6 = socket(AF_INET6, SOCK_DGRAM, 0);
	struct sockaddr_in6 at6 = { .sin6_family = AF_INET6, .sin6_scope_id = loopback };
	struct ipv6_mreq join6 = { .ipv6mr_interface = loopback };
	BUILD(inet_pton(AF_INET6, "ff01::77:21", &at6.sin6_addr));
	join6.ipv6mr_multiaddr = at6.sin6_addr;
	struct sockaddr_in6 here6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	if (sender6 >= 0 && conform_bind(sender6, (struct sockaddr *)&here6, sizeof here6) == 0) {
		socklen_t length = sizeof at6;
		member6 = (int)BUILD(socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0));
		BUILD(conform_bind(member6, (struct sockaddr *)&at6, length));
		BUILD(getsockname(member6, (struct sockaddr *)&at6, &length));
		BUILD(setsockopt(member6, IPPROTO_IPV6, IPV6_JOIN_GROUP, &join6, sizeof join6));
		BUILD(setsockopt(sender6, IPPROTO_IPV6, IPV6_MULTICAST_IF, &loopback, sizeof loopback));
		if (sendto(sender6, "six", 3, 0, (struct sockaddr *)&at6, length) < 0) {
			/* No route for groups of IPv6 here. */
			BUILD(close(member6));
			member6 = -1;
		}
	}
	conform_ready();
	conform_wait();

	expect("the first of two", first, "again", port_of(sender));
	expect_no_more("the first of two", first);
	expect("the second of two", second, "both", port_of(sender));
	expect("the second of two", second, "again", port_of(sender));
	expect_no_more("the second of two", second);
	expect("who has left", left, "left", port_of(sender));
	expect_no_more("who has left", left);
	EXPECT("the group's port", ntohs(port_of(second)), ntohs(at.sin_port));
	char device[IF_NAMESIZE] = "";
	socklen_t length = sizeof device;
	BUILD(getsockopt(second, SOL_SOCKET, SO_BINDTODEVICE, device, &length));
	EXPECT_TEXT("the device", device, "lo");
	int on = 1;
	BUILD(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_LOOP, &on, sizeof on));
	BUILD(sendto(sender, "new", 3, 0, (struct sockaddr *)&at, sizeof at));
	expect("sent anew", first, "new", port_of(sender));
	expect("sent anew", second, "new", port_of(sender));
	if (member6 >= 0) {
		expect("IPv6", member6, "six", port_of(sender6));
		expect_no_more("IPv6", member6);
		BUILD(sendto(sender6, "new", 3, 0, (struct sockaddr *)&at6, sizeof at6));
		expect("IPv6, sent anew", member6, "new", port_of(sender6));
	}
	conform_pass();
}
