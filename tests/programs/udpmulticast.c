/*
 * Multicast of UDP sockets: memberships by group and by source, of IPv4 and IPv6, who is no member, and what is sent:
 * interface, TTL and loop.
 */
#include "conform.h"
#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#ifndef IP_MULTICAST_ALL
#define IP_MULTICAST_ALL 49
#endif
#ifndef IPV6_MULTICAST_ALL
#define IPV6_MULTICAST_ALL 29
#endif

static unsigned loopback;

static struct sockaddr_storage address(int family, const char *text, in_port_t port)
{
	struct sockaddr_storage at = { .ss_family = family };
	void *to = family == AF_INET ? (void *)&((struct sockaddr_in *)&at)->sin_addr :
				       (void *)&((struct sockaddr_in6 *)&at)->sin6_addr;
	if (inet_pton(family, text, to) != 1)
		conform_fail("%s is no address", text);
	/* The port is at the same place in both. */
	((struct sockaddr_in *)&at)->sin_port = port;
	return at;
}

static int level(int family)
{
	return family == AF_INET ? IPPROTO_IP : IPPROTO_IPV6;
}

static int bound(int family, in_port_t *port)
{
	int fd = (int)BUILD(socket(family, SOCK_DGRAM | SOCK_NONBLOCK, 0)), on = 1, off = 0;
	BUILD(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on));
	BUILD(setsockopt(fd, level(family), family == AF_INET ? IP_MULTICAST_ALL : IPV6_MULTICAST_ALL, &off, sizeof off));
	struct sockaddr_storage at = address(family, family == AF_INET ? "0.0.0.0" : "::", *port);
	socklen_t length = sizeof at;
	BUILD(conform_bind(fd, (struct sockaddr *)&at, length));
	BUILD(getsockname(fd, (struct sockaddr *)&at, &length));
	*port = ((struct sockaddr_in *)&at)->sin_port;
	return fd;
}

static void join(int fd, int family, const char *group)
{
	struct group_req request = { .gr_interface = loopback, .gr_group = address(family, group, 0) };
	BUILD(setsockopt(fd, level(family), MCAST_JOIN_GROUP, &request, sizeof request));
}

static void with_source(int fd, int family, int what, const char *group, const char *source)
{
	struct group_source_req request = {
		.gsr_interface = loopback,
		.gsr_group = address(family, group, 0),
		.gsr_source = address(family, source, 0),
	};
	BUILD(setsockopt(fd, level(family), what, &request, sizeof request));
}

/* mode -1: no member. */
static void expect_filter(int fd, int family, const char *group, int mode, const char *source)
{
	char room[GROUP_FILTER_SIZE(4)] = "";
	struct group_filter *filter = (struct group_filter *)room;
	filter->gf_interface = loopback;
	filter->gf_group = address(family, group, 0);
	filter->gf_numsrc = 4;
	socklen_t length = sizeof room;
	int found = getsockopt(fd, level(family), MCAST_MSFILTER, filter, &length);
	if (mode < 0) {
		EXPECT(group, found, -1);
		EXPECT(group, errno, EADDRNOTAVAIL);
		return;
	}
	if (found != 0)
		conform_fail("%s: no member: %s", group, strerror(errno));
	EXPECT(group, filter->gf_fmode, mode);
	EXPECT(group, filter->gf_numsrc, source ? 1 : 0);
	if (!source)
		return;
	struct sockaddr_storage wanted = address(family, source, 0);
	bool same = family == AF_INET ? !memcmp(&((struct sockaddr_in *)filter->gf_slist)->sin_addr,
						&((struct sockaddr_in *)&wanted)->sin_addr, 4) :
					!memcmp(&((struct sockaddr_in6 *)filter->gf_slist)->sin6_addr,
						&((struct sockaddr_in6 *)&wanted)->sin6_addr, 16);
	EXPECT("the source", same, 1);
}

static int number(int fd, int level, int option)
{
	int value = 0;
	socklen_t length = sizeof value;
	BUILD(getsockopt(fd, level, option, &value, &length));
	return value;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	loopback = if_nametoindex("lo");
	if (!loopback)
		conform_skip("no loopback interface");
	in_port_t port = 0, port6 = 0;
	int member = bound(AF_INET, &port), stranger = bound(AF_INET, &port);
	int sender = (int)BUILD(socket(AF_INET, SOCK_DGRAM, 0)), ttl = 7, on = 1;
	/* The old way, by the interface's address. */
	struct ip_mreq old = {
		.imr_multiaddr.s_addr = inet_addr("239.77.1.1"), .imr_interface.s_addr = inet_addr("127.0.0.1")
	};
	BUILD(setsockopt(member, IPPROTO_IP, IP_ADD_MEMBERSHIP, &old, sizeof old));
	join(member, AF_INET, "239.77.1.2");
	with_source(member, AF_INET, MCAST_BLOCK_SOURCE, "239.77.1.2", "192.0.2.7");
	with_source(member, AF_INET, MCAST_JOIN_SOURCE_GROUP, "239.77.1.3", "127.0.0.1");
	BUILD(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_IF, &old.imr_interface, sizeof old.imr_interface));
	BUILD(setsockopt(sender, IPPROTO_IP, IP_MULTICAST_TTL, &ttl, sizeof ttl));
	int member6 = -1, sender6 = socket(AF_INET6, SOCK_DGRAM, 0), off = 0;
	struct group_req request = { .gr_interface = loopback, .gr_group = address(AF_INET6, "ff15::77:1", 0) };
	if (sender6 >= 0 && setsockopt(sender6, IPPROTO_IPV6, MCAST_JOIN_GROUP, &request, sizeof request) == 0) {
		BUILD(setsockopt(sender6, IPPROTO_IPV6, MCAST_LEAVE_GROUP, &request, sizeof request));
		member6 = bound(AF_INET6, &port6);
		join(member6, AF_INET6, "ff15::77:1");
		with_source(member6, AF_INET6, MCAST_JOIN_SOURCE_GROUP, "ff15::77:2", "2001:db8::7");
		BUILD(setsockopt(sender6, IPPROTO_IPV6, IPV6_MULTICAST_IF, &loopback, sizeof loopback));
		BUILD(setsockopt(sender6, IPPROTO_IPV6, IPV6_MULTICAST_HOPS, &ttl, sizeof ttl));
		BUILD(setsockopt(sender6, IPPROTO_IPV6, IPV6_MULTICAST_LOOP, &off, sizeof off));
		/* An IPv6 socket's membership of a group of IPv4. */
		struct group_req mapped = { .gr_interface = loopback, .gr_group = address(AF_INET, "239.77.1.4", 0) };
		BUILD(setsockopt(member6, IPPROTO_IP, MCAST_JOIN_GROUP, &mapped, sizeof mapped));
	}
	conform_ready();
	conform_wait();

	expect_filter(member, AF_INET, "239.77.1.1", MCAST_EXCLUDE, NULL);
	expect_filter(member, AF_INET, "239.77.1.2", MCAST_EXCLUDE, "192.0.2.7");
	expect_filter(member, AF_INET, "239.77.1.3", MCAST_INCLUDE, "127.0.0.1");
	expect_filter(stranger, AF_INET, "239.77.1.1", -1, NULL);
	EXPECT("IP_MULTICAST_ALL", number(member, IPPROTO_IP, IP_MULTICAST_ALL), 0);
	EXPECT("IP_MULTICAST_TTL", number(sender, IPPROTO_IP, IP_MULTICAST_TTL), ttl);
	EXPECT("IP_MULTICAST_IF", number(sender, IPPROTO_IP, IP_MULTICAST_IF), (int)inet_addr("127.0.0.1"));
	const char *groups[] = { "239.77.1.1", "239.77.1.2", "239.77.1.3" };
	for (int i = 0; i < 3; i++) {
		struct sockaddr_storage to = address(AF_INET, groups[i], port);
		char sent = (char)('1' + i), got = 0;
		BUILD(sendto(sender, &sent, 1, 0, (struct sockaddr *)&to, sizeof to));
		EXPECT(groups[i], recv(member, &got, 1, 0), 1);
		EXPECT(groups[i], got, sent);
	}
	char none;
	EXPECT_ERROR("who is no member", recv(stranger, &none, 1, 0), EAGAIN);
	/* What has come back can be left. */
	BUILD(setsockopt(member, IPPROTO_IP, IP_DROP_MEMBERSHIP, &old, sizeof old));
	if (member6 >= 0) {
		expect_filter(member6, AF_INET6, "ff15::77:1", MCAST_EXCLUDE, NULL);
		expect_filter(member6, AF_INET6, "ff15::77:2", MCAST_INCLUDE, "2001:db8::7");
		EXPECT("IPV6_MULTICAST_ALL", number(member6, IPPROTO_IPV6, IPV6_MULTICAST_ALL), 0);
		EXPECT("IPV6_MULTICAST_IF", number(sender6, IPPROTO_IPV6, IPV6_MULTICAST_IF), loopback);
		EXPECT("IPV6_MULTICAST_HOPS", number(sender6, IPPROTO_IPV6, IPV6_MULTICAST_HOPS), ttl);
		EXPECT("IPV6_MULTICAST_LOOP", number(sender6, IPPROTO_IPV6, IPV6_MULTICAST_LOOP), 0);
		EXPECT("the family of addresses", number(member6, SOL_SOCKET, SO_DOMAIN), AF_INET6);
		struct group_req mapped = { .gr_interface = loopback, .gr_group = address(AF_INET, "239.77.1.4", 0) };
		EXPECT("leaving a group of IPv4",
		       setsockopt(member6, IPPROTO_IP, MCAST_LEAVE_GROUP, &mapped, sizeof mapped), 0);
	}
	(void)on;
	conform_pass();
}
