/*
 * Packet sockets: protocol, interface, memberships, filter and options. They hear what comes after the restart, and nothing
 * of the restart itself.
 *
 * conform: root
 */
#include "conform.h"
#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_packet.h>
#include <linux/rtnetlink.h>
#include <net/ethernet.h>
#include <poll.h>
#include <sys/socket.h>

enum { OURS = 0x88b5, OTHER = 0x88b6 }; /* for experiments (IEEE 802) */

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

static int make(int kind, int protocol)
{
	int fd = socket(AF_PACKET, kind, htons(protocol));
	if (fd < 0 && (errno == EPERM || errno == EAFNOSUPPORT))
		conform_skip("this kernel or user has none");
	return (int)BUILD(fd);
}

static struct sockaddr_ll name_of(int fd)
{
	struct sockaddr_ll name;
	socklen_t length = sizeof name;
	memset(&name, 0, sizeof name);
	BUILD(getsockname(fd, (struct sockaddr *)&name, &length));
	return name;
}

static void join(int fd, int lo, int kind)
{
	struct packet_mreq request = { .mr_ifindex = lo, .mr_type = (unsigned short)kind };
	BUILD(setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &request, sizeof request));
}

/* How often it is wanted that the interface hears everything. */
static int promiscuity(int lo)
{
	int fd = (int)BUILD(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
	struct { struct nlmsghdr head; struct ifinfomsg body; } request = {
		{ sizeof request, RTM_GETLINK, NLM_F_REQUEST, 1, 0 }, { .ifi_index = lo } };
	union { struct nlmsghdr head; char room[8192]; } got;
	BUILD(send(fd, &request, sizeof request, 0));
	EXPECT_BETWEEN("bytes", recv(fd, &got, sizeof got, 0), NLMSG_LENGTH(sizeof request.body), sizeof got);
	EXPECT("an answer", got.head.nlmsg_type, RTM_NEWLINK);
	struct rtattr *one = IFLA_RTA(NLMSG_DATA(&got.head));
	int found = -1;
	for (int left = (int)IFLA_PAYLOAD(&got.head); RTA_OK(one, left); one = RTA_NEXT(one, left))
		if (one->rta_type == IFLA_PROMISCUITY)
			found = *(int *)RTA_DATA(one);
	BUILD(close(fd));
	return found;
}

static int waiting(int fd, int limit)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	return (int)BUILD(poll(&ready, 1, limit));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int lo = 1; /* of every network */
	int bound = make(SOCK_DGRAM, 0), everywhere = make(SOCK_RAW, OURS), silent = make(SOCK_DGRAM, 0);
	int filtered = make(SOCK_RAW, 0), sender = make(SOCK_DGRAM, 0);
	struct sockaddr_ll name = { .sll_family = AF_PACKET, .sll_protocol = htons(OURS), .sll_ifindex = lo };
	BUILD(bind(bound, (struct sockaddr *)&name, sizeof name));
	struct sock_filter none[] = { BPF_STMT(BPF_RET | BPF_K, 0) };
	struct sock_fprog program = { 1, none };
	BUILD(setsockopt(filtered, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program));
	struct sockaddr_ll all = { .sll_family = AF_PACKET, .sll_protocol = htons(ETH_P_ALL) };
	BUILD(bind(filtered, (struct sockaddr *)&all, sizeof all));
	join(bound, lo, PACKET_MR_PROMISC);
	join(bound, lo, PACKET_MR_PROMISC);
	join(everywhere, lo, PACKET_MR_ALLMULTI);
	set(bound, SOL_PACKET, PACKET_AUXDATA, 1);
	set(bound, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
	set(everywhere, SOL_PACKET, PACKET_ORIGDEV, 1);
	set(everywhere, SOL_SOCKET, SO_RCVBUF, 30000);
	int room = number(everywhere, SOL_SOCKET, SO_RCVBUF);
	conform_ready();
	conform_wait();

	EXPECT("kind", number(bound, SOL_SOCKET, SO_TYPE), SOCK_DGRAM);
	EXPECT("kind", number(everywhere, SOL_SOCKET, SO_TYPE), SOCK_RAW);
	EXPECT("protocol", ntohs(name_of(bound).sll_protocol), OURS);
	EXPECT("interface", name_of(bound).sll_ifindex, lo);
	EXPECT("protocol of all interfaces'", ntohs(name_of(everywhere).sll_protocol), OURS);
	EXPECT("no interface", name_of(everywhere).sll_ifindex, 0);
	EXPECT("no protocol", name_of(silent).sll_protocol, 0);
	EXPECT("all protocols", ntohs(name_of(filtered).sll_protocol), ETH_P_ALL);
	EXPECT("PACKET_AUXDATA", number(bound, SOL_PACKET, PACKET_AUXDATA), 1);
	EXPECT("PACKET_AUXDATA that is not set", number(everywhere, SOL_PACKET, PACKET_AUXDATA), 0);
	EXPECT("PACKET_IGNORE_OUTGOING", number(bound, SOL_PACKET, PACKET_IGNORE_OUTGOING), 1);
	EXPECT("PACKET_ORIGDEV", number(everywhere, SOL_PACKET, PACKET_ORIGDEV), 1);
	EXPECT("SO_RCVBUF", number(everywhere, SOL_SOCKET, SO_RCVBUF), room);
	EXPECT("nothing to read", waiting(bound, 0) + waiting(everywhere, 0) + waiting(filtered, 0), 0);

	/* One of ours is heard by both, one of another protocol by nobody. */
	struct sockaddr_ll to = name;
	to.sll_halen = 6;
	to.sll_protocol = htons(OTHER);
	EXPECT("bytes sent", sendto(sender, "other", 5, 0, (struct sockaddr *)&to, sizeof to), 5);
	to.sll_protocol = htons(OURS);
	EXPECT("bytes sent", sendto(sender, "ours", 4, 0, (struct sockaddr *)&to, sizeof to), 4);
	char got[64];
	EXPECT("heard", waiting(bound, 5000), 1);
	EXPECT("bytes of it", recv(bound, got, sizeof got, 0), 4);
	EXPECT("what was sent", memcmp(got, "ours", 4), 0);
	EXPECT_ERROR("no more", recv(bound, got, sizeof got, MSG_DONTWAIT), EAGAIN);
	EXPECT("heard with its header", recv(everywhere, got, sizeof got, 0), 18);
	EXPECT("nothing without a protocol", waiting(silent, 0), 0);
	EXPECT("nothing through the filter", waiting(filtered, 0), 0);
	while (recv(everywhere, got, sizeof got, MSG_DONTWAIT) > 0)
		;

	struct packet_mreq request = { .mr_ifindex = lo, .mr_type = PACKET_MR_PROMISC };
	EXPECT("joined twice", promiscuity(lo), 1);
	BUILD(setsockopt(bound, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &request, sizeof request));
	EXPECT("once", promiscuity(lo), 1);
	BUILD(setsockopt(bound, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &request, sizeof request));
	EXPECT("not any more", promiscuity(lo), 0);
	request.mr_type = PACKET_MR_ALLMULTI;
	BUILD(setsockopt(everywhere, SOL_PACKET, PACKET_DROP_MEMBERSHIP, &request, sizeof request));
	conform_pass();
}
