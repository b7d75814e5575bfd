/* ICMP sockets, as ping(8) has them without privilege: identifier, peer, options, and what is shut down. */
#include "conform.h"
#include <arpa/inet.h>
#include <netinet/icmp6.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <sys/socket.h>

static int number(int fd, int level, int option)
{
	int value = -1;
	socklen_t length = sizeof value;
	BUILD(getsockopt(fd, level, option, &value, &length));
	return value;
}

static void set(int fd, int level, int option, int value)
{
	BUILD(setsockopt(fd, level, option, &value, sizeof value));
}

static int make(int family)
{
	int fd = socket(family, SOCK_DGRAM, family == AF_INET ? IPPROTO_ICMP : (int)IPPROTO_ICMPV6);
	if (fd < 0 && (errno == EACCES || errno == EPROTONOSUPPORT || errno == EAFNOSUPPORT))
		conform_skip("ICMP sockets are not for this group (net.ipv4.ping_group_range)");
	return (int)BUILD(fd);
}

static unsigned identifier(int fd)
{
	struct sockaddr_in6 name;
	socklen_t length = sizeof name;
	BUILD(getsockname(fd, (struct sockaddr *)&name, &length));
	return ntohs(name.sin6_port);
}

/* Asks, and reads the answer, which bears the socket's identifier. */
static void ping(int fd, const void *to, socklen_t length, uint8_t request, uint8_t reply, uint16_t number)
{
	struct icmphdr sent = { .type = request, .un.echo.sequence = htons(number) }, got;
	memset(&got, 0, sizeof got);
	EXPECT("bytes sent", sendto(fd, &sent, sizeof sent, 0, to, length), sizeof sent);
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	EXPECT("an answer", poll(&ready, 1, 5000), 1);
	EXPECT("bytes received", recv(fd, &got, sizeof got, 0), sizeof got);
	EXPECT("type", got.type, reply);
	EXPECT("sequence", ntohs(got.un.echo.sequence), number);
	EXPECT("identifier", ntohs(got.un.echo.id), identifier(fd));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int bound = make(AF_INET), connected = make(AF_INET), fresh = make(AF_INET), six = make(AF_INET6);
	int shut = make(AF_INET), both = make(AF_INET), alone = make(AF_INET), with_port = make(AF_INET);
	int six_connected = make(AF_INET6);
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) }, found;
	struct sockaddr_in6 here6 = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT };
	struct sockaddr_in any = { .sin_family = AF_INET };
	/* The kernel's choice. */
	BUILD(bind(bound, (struct sockaddr *)&any, sizeof any));
	BUILD(connect(connected, (struct sockaddr *)&here, sizeof here));
	struct sockaddr_in port = here;
	port.sin_port = htons(7);
	BUILD(connect(with_port, (struct sockaddr *)&port, sizeof port));
	BUILD(connect(six_connected, (struct sockaddr *)&here6, sizeof here6));
	BUILD(connect(shut, (struct sockaddr *)&here, sizeof here));
	BUILD(connect(both, (struct sockaddr *)&here, sizeof here));
	set(bound, IPPROTO_IP, IP_TTL, 9);
	set(bound, IPPROTO_IP, IP_RECVTTL, 1);
	set(bound, SOL_SOCKET, SO_RCVBUF, 20000);
	set(connected, SOL_SOCKET, SO_REUSEADDR, 0);
	set(connected, IPPROTO_IP, IP_RECVERR, 1);
	set(six, IPPROTO_IPV6, IPV6_UNICAST_HOPS, 11);
	BUILD(bind(six, (struct sockaddr *)&here6, sizeof here6));
	unsigned of_bound = identifier(bound), of_connected = identifier(connected), of_six = identifier(six);
	int room = number(bound, SOL_SOCKET, SO_RCVBUF);
	ping(connected, NULL, 0, ICMP_ECHO, ICMP_ECHOREPLY, 1);
	BUILD(shutdown(shut, SHUT_RD));
	BUILD(shutdown(both, SHUT_RDWR));
	EXPECT_ERROR("shutdown without a peer", shutdown(alone, SHUT_RDWR), ENOTCONN);
	signal(SIGPIPE, SIG_IGN);
	conform_ready();
	conform_wait();

	EXPECT("protocol", number(bound, SOL_SOCKET, SO_PROTOCOL), IPPROTO_ICMP);
	EXPECT("protocol of IPv6", number(six, SOL_SOCKET, SO_PROTOCOL), IPPROTO_ICMPV6);
	EXPECT("kind", number(bound, SOL_SOCKET, SO_TYPE), SOCK_DGRAM);
	EXPECT("identifier", identifier(bound), of_bound);
	EXPECT("of the connected one", identifier(connected), of_connected);
	EXPECT("of the one of IPv6", identifier(six), of_six);
	EXPECT("of one that has none", identifier(fresh), 0);
	socklen_t length = sizeof found;
	BUILD(getpeername(with_port, (struct sockaddr *)&found, &length));
	EXPECT("peer", found.sin_addr.s_addr, here.sin_addr.s_addr);
	EXPECT("its port", ntohs(found.sin_port), 7);
	/* Of one that was given no port, the kernel says that it has no peer, whom it sends to all the same. */
	EXPECT_ERROR("peer without a port", getpeername(connected, (struct sockaddr *)&found, &length), ENOTCONN);
	EXPECT_ERROR("no peer", getpeername(bound, (struct sockaddr *)&found, &length), ENOTCONN);
	struct icmphdr request = { .type = ICMP_ECHO };
	EXPECT_ERROR("to nobody", send(bound, &request, sizeof request, 0), EDESTADDRREQ);
	EXPECT("IP_TTL", number(bound, IPPROTO_IP, IP_TTL), 9);
	EXPECT("IP_RECVTTL", number(bound, IPPROTO_IP, IP_RECVTTL), 1);
	EXPECT("SO_RCVBUF", number(bound, SOL_SOCKET, SO_RCVBUF), room);
	EXPECT("SO_REUSEADDR as it begins", number(bound, SOL_SOCKET, SO_REUSEADDR), 1);
	EXPECT("SO_REUSEADDR", number(connected, SOL_SOCKET, SO_REUSEADDR), 0);
	EXPECT("IP_RECVERR", number(connected, IPPROTO_IP, IP_RECVERR), 1);
	EXPECT("IPV6_UNICAST_HOPS", number(six, IPPROTO_IPV6, IPV6_UNICAST_HOPS), 11);
	char got[8];
	EXPECT_ERROR("nothing to read", recv(bound, got, sizeof got, MSG_DONTWAIT), EAGAIN);
	ping(connected, NULL, 0, ICMP_ECHO, ICMP_ECHOREPLY, 2);
	ping(bound, &here, sizeof here, ICMP_ECHO, ICMP_ECHOREPLY, 3);
	ping(fresh, &here, sizeof here, ICMP_ECHO, ICMP_ECHOREPLY, 4);
	ping(six, &here6, sizeof here6, ICMP6_ECHO_REQUEST, ICMP6_ECHO_REPLY, 5);
	ping(six_connected, NULL, 0, ICMP6_ECHO_REQUEST, ICMP6_ECHO_REPLY, 6);
	ping(with_port, NULL, 0, ICMP_ECHO, ICMP_ECHOREPLY, 7);
	struct pollfd ready = { .fd = shut, .events = POLLRDHUP };
	EXPECT("shut for reading", poll(&ready, 1, 0), 1);
	EXPECT("shut for reading alone", ready.revents, POLLRDHUP);
	ready = (struct pollfd){ .fd = both, .events = POLLRDHUP };
	EXPECT("shut", poll(&ready, 1, 0), 1);
	EXPECT("shut for both", ready.revents, POLLHUP | POLLRDHUP);
	EXPECT_ERROR("shut for writing", send(both, &request, sizeof request, 0), EPIPE);
	ready = (struct pollfd){ .fd = alone, .events = POLLRDHUP };
	EXPECT("shut without a peer", poll(&ready, 1, 0), 1);
	EXPECT("for both", ready.revents, POLLHUP | POLLRDHUP);
	ready = (struct pollfd){ .fd = bound, .events = POLLRDHUP };
	EXPECT("not shut", poll(&ready, 1, 0), 0);
	conform_pass();
}
