/*
 * Raw sockets: protocol, address, peer, device, filters, options of theirs, groups, what is shut down.
 *
 * conform: root
 */
#include "conform.h"
#include <arpa/inet.h>
#include <linux/filter.h>
#include <net/if.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <poll.h>
#include <sys/socket.h>

#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78
#endif
#ifndef IPV6_HDRINCL
#define IPV6_HDRINCL 36
#endif
enum { OURS = 200, OTHER = 201 };
/* include/uapi/linux/icmp.h, whose header goes with no other */
enum { ICMP_FILTER = 1, INFO_REQUEST = 15 };

static int number(int fd, int level, int option)
{
	int value = -77;
	socklen_t length = sizeof value;
	BUILD(getsockopt(fd, level, option, &value, &length));
	return value;
}

static void set(int fd, int level, int option, int value)
{
	BUILD(setsockopt(fd, level, option, &value, sizeof value));
}

static int make(int family, int protocol)
{
	int fd = socket(family, SOCK_RAW, protocol);
	if (fd < 0 && errno == EPERM)
		conform_skip("raw sockets are forbidden here");
	return (int)BUILD(fd);
}

static bool readable(int fd, int limit)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	return BUILD(poll(&ready, 1, limit)) == 1;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_in second = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1) }, found;
	struct sockaddr_in6 here6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT }, found6;
	int bound = make(AF_INET, OURS), connected = make(AF_INET, OURS), sender = make(AF_INET, IPPROTO_RAW);
	int of_tcp = make(AF_INET, IPPROTO_TCP);
	socklen_t length;
	int icmp = make(AF_INET, IPPROTO_ICMP), six = make(AF_INET6, OTHER), icmp6 = make(AF_INET6, IPPROTO_ICMPV6);
	int shut = make(AF_INET, OTHER), member = make(AF_INET, OTHER);
	int with_port = make(AF_INET, OTHER);
	struct sockaddr_in port = here;
	port.sin_port = htons(9);
	BUILD(connect(with_port, (struct sockaddr *)&port, sizeof port));
	BUILD(bind(bound, (struct sockaddr *)&second, sizeof second));
	set(bound, IPPROTO_IP, IP_TTL, 33);
	set(bound, IPPROTO_IP, IP_PKTINFO, 1);
	BUILD(setsockopt(connected, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
	BUILD(connect(connected, (struct sockaddr *)&here, sizeof here));
	set(of_tcp, IPPROTO_IP, IP_HDRINCL, 1);
	uint32_t only = ~(1u << INFO_REQUEST);
	BUILD(setsockopt(icmp, SOL_RAW, ICMP_FILTER, &only, sizeof only));
	struct icmp6_filter only6, found_filter6;
	ICMP6_FILTER_SETBLOCKALL(&only6);
	ICMP6_FILTER_SETPASS(200, &only6);
	BUILD(setsockopt(icmp6, IPPROTO_ICMPV6, ICMP6_FILTER, &only6, sizeof only6));
	set(six, SOL_RAW, IPV6_CHECKSUM, 2);
	BUILD(bind(six, (struct sockaddr *)&here6, sizeof here6));
	int head6 = make(AF_INET6, OTHER);
	set(head6, IPPROTO_IPV6, IPV6_HDRINCL, 1);
	/* Nothing passes this one, so that it has nothing to read. */
	struct sock_filter none[] = { BPF_STMT(BPF_RET | BPF_K, 0) };
	struct sock_fprog program = { 1, none };
	BUILD(setsockopt(of_tcp, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
	BUILD(connect(shut, (struct sockaddr *)&here, sizeof here));
	BUILD(shutdown(shut, SHUT_RDWR));
	BUILD(shutdown(with_port, SHUT_RD));
	struct ip_mreqn group = { { inet_addr("239.7.7.7") }, { htonl(INADDR_LOOPBACK) }, (int)if_nametoindex("lo") };
	BUILD(setsockopt(member, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group));
	set(member, SOL_SOCKET, SO_MARK, 17);
	set(of_tcp, IPPROTO_IP, IP_NODEFRAG, 1);
	set(icmp, IPPROTO_IP, IP_ROUTER_ALERT, 1);
	int alert6 = make(AF_INET6, IPPROTO_RAW), told;
	set(alert6, IPPROTO_IPV6, IPV6_ROUTER_ALERT, 1);
	/* Before Linux 6.8 no call tells. */
	length = sizeof told;
	bool tells6 = getsockopt(alert6, IPPROTO_IPV6, IPV6_ROUTER_ALERT, &told, &length) == 0;
	set(alert6, IPPROTO_IPV6, IPV6_ROUTER_ALERT_ISOLATE, 1);
	set(six, IPPROTO_IPV6, IPV6_FREEBIND, 1);
	conform_ready();
	conform_wait();
	EXPECT("an address that is not here, by IPv6", number(six, IPPROTO_IPV6, IPV6_FREEBIND), 1);

	length = sizeof found;
	EXPECT("protocol", number(bound, SOL_SOCKET, SO_PROTOCOL), OURS);
	EXPECT("kind", number(bound, SOL_SOCKET, SO_TYPE), SOCK_RAW);
	EXPECT("protocol TCP", number(of_tcp, SOL_SOCKET, SO_PROTOCOL), IPPROTO_TCP);
	BUILD(getsockname(bound, (struct sockaddr *)&found, &length));
	EXPECT("address", found.sin_addr.s_addr, second.sin_addr.s_addr);
	length = sizeof found;
	BUILD(getsockname(icmp, (struct sockaddr *)&found, &length));
	EXPECT("no address", found.sin_addr.s_addr, INADDR_ANY);
	length = sizeof found;
	BUILD(getpeername(with_port, (struct sockaddr *)&found, &length));
	EXPECT("peer", found.sin_addr.s_addr, here.sin_addr.s_addr);
	EXPECT("its port", ntohs(found.sin_port), 9);
	/* Without a port there seems to be none. */
	EXPECT_ERROR("peer without a port", getpeername(connected, (struct sockaddr *)&found, &length), ENOTCONN);
	EXPECT_ERROR("no peer", getpeername(bound, (struct sockaddr *)&found, &length), ENOTCONN);
	length = sizeof found6;
	BUILD(getsockname(six, (struct sockaddr *)&found6, &length));
	EXPECT("address of IPv6", memcmp(&found6.sin6_addr, &here6.sin6_addr, 16), 0);
	EXPECT("IP_TTL", number(bound, IPPROTO_IP, IP_TTL), 33);
	EXPECT("IP_PKTINFO", number(bound, IPPROTO_IP, IP_PKTINFO), 1);
	char device[IFNAMSIZ] = "";
	length = sizeof device;
	BUILD(getsockopt(connected, SOL_SOCKET, SO_BINDTODEVICE, device, &length));
	EXPECT_TEXT("SO_BINDTODEVICE", device, "lo");
	EXPECT("IP_HDRINCL", number(of_tcp, IPPROTO_IP, IP_HDRINCL), 1);
	EXPECT("IP_NODEFRAG", number(of_tcp, IPPROTO_IP, IP_NODEFRAG), 1);
	EXPECT("IP_ROUTER_ALERT", number(icmp, IPPROTO_IP, IP_ROUTER_ALERT), 1);
	if (tells6)
		EXPECT("IPV6_ROUTER_ALERT", number(alert6, IPPROTO_IPV6, IPV6_ROUTER_ALERT), 1);
	EXPECT("IPV6_ROUTER_ALERT_ISOLATE", number(alert6, IPPROTO_IPV6, IPV6_ROUTER_ALERT_ISOLATE), 1);
	EXPECT("IP_HDRINCL of IPPROTO_RAW", number(sender, IPPROTO_IP, IP_HDRINCL), 1);
	EXPECT("IP_HDRINCL that is not set", number(bound, IPPROTO_IP, IP_HDRINCL), 0);
	EXPECT("ICMP_FILTER", number(icmp, SOL_RAW, ICMP_FILTER), (int)only);
	length = sizeof found_filter6;
	BUILD(getsockopt(icmp6, IPPROTO_ICMPV6, ICMP6_FILTER, &found_filter6, &length));
	EXPECT("ICMP6_FILTER", memcmp(&found_filter6, &only6, sizeof only6), 0);
	EXPECT("IPV6_CHECKSUM", number(six, SOL_RAW, IPV6_CHECKSUM), 2);
	EXPECT("IPV6_CHECKSUM that is not set", number(head6, SOL_RAW, IPV6_CHECKSUM), -1);
	EXPECT("IPV6_HDRINCL", number(head6, IPPROTO_IPV6, IPV6_HDRINCL), 1);
	EXPECT("SO_MARK", number(member, SOL_SOCKET, SO_MARK), 17);
	EXPECT("nothing to read", readable(connected, 0), 0);
	EXPECT_ERROR("a member already", setsockopt(member, IPPROTO_IP, IP_ADD_MEMBERSHIP, &group, sizeof group),
		     EADDRINUSE);
	struct pollfd ready = { .fd = shut, .events = POLLRDHUP };
	EXPECT("shut", poll(&ready, 1, 0), 1);
	EXPECT("for both", ready.revents, POLLHUP | POLLRDHUP);
	ready = (struct pollfd){ .fd = with_port, .events = POLLRDHUP };
	EXPECT("shut", poll(&ready, 1, 0), 1);
	EXPECT("for reading alone", ready.revents, POLLRDHUP);

	/* To the one address, from the other one: a header of ours goes out as it is. */
	struct { struct iphdr head; char text[4]; } packet = {
		{ .version = 4, .ihl = 5, .ttl = 5, .protocol = OURS, .saddr = here.sin_addr.s_addr,
		  .daddr = second.sin_addr.s_addr }, "abc" }, got;
	EXPECT("bytes sent", sendto(sender, &packet, sizeof packet, 0, (struct sockaddr *)&second, sizeof second),
	       sizeof packet);
	EXPECT("it comes to the one with that address", readable(bound, 5000), 1);
	EXPECT("bytes received", recv(bound, &got, sizeof got, 0), sizeof got);
	EXPECT("hops", got.head.ttl, 5);
	EXPECT_TEXT("text", got.text, "abc");
	/* And to the connected one what comes from its peer to its own address. */
	EXPECT("bytes sent", send(connected, "hello", 5, 0), 5);
	EXPECT("it comes back", readable(connected, 5000), 1);
	struct { struct iphdr head; char text[5]; } hello;
	EXPECT("with its header", recv(connected, &hello, sizeof hello, 0), 25);
	EXPECT("its text", memcmp(hello.text, "hello", 5), 0);
	EXPECT("nobody else's", readable(bound, 0), 0);
	conform_pass();
}
