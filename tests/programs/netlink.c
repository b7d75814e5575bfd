/* Netlink sockets: port, peer, groups below and above the 32nd, and options. */
#include "conform.h"
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#ifndef SOL_NETLINK
#define SOL_NETLINK 270
#endif

static int number(int fd, int level, int option)
{
	int value = -1;
	socklen_t length = sizeof value;
	BUILD(getsockopt(fd, level, option, &value, &length));
	return value;
}

static bool is_member(int fd, unsigned group)
{
	uint32_t groups[16] = { 0 };
	socklen_t length = sizeof groups;
	BUILD(getsockopt(fd, SOL_NETLINK, NETLINK_LIST_MEMBERSHIPS, groups, &length));
	return groups[(group - 1) / 32] >> ((group - 1) % 32) & 1;
}

static void join(int fd, int group)
{
	BUILD(setsockopt(fd, SOL_NETLINK, NETLINK_ADD_MEMBERSHIP, &group, sizeof group));
}

static const struct option {
	int level, name;
	const char *text;
} options[] = {
	{ SOL_NETLINK, NETLINK_PKTINFO, "NETLINK_PKTINFO" },
	{ SOL_NETLINK, NETLINK_BROADCAST_ERROR, "NETLINK_BROADCAST_ERROR" },
	{ SOL_NETLINK, NETLINK_NO_ENOBUFS, "NETLINK_NO_ENOBUFS" },
	{ SOL_NETLINK, NETLINK_CAP_ACK, "NETLINK_CAP_ACK" },
	{ SOL_NETLINK, NETLINK_EXT_ACK, "NETLINK_EXT_ACK" },
	{ SOL_NETLINK, NETLINK_GET_STRICT_CHK, "NETLINK_GET_STRICT_CHK" },
	{ SOL_SOCKET, SO_PASSCRED, "SO_PASSCRED" },
	{ SOL_SOCKET, SO_TIMESTAMP, "SO_TIMESTAMP" },
};
enum { GROUP_ABOVE = 33 };
enum { OPTIONS = sizeof options / sizeof *options };

/* Programs side by side have the same process numbers, by which the kernel would choose the ports. */
static unsigned port(void)
{
	struct timespec now;
	static unsigned further;
	BUILD(clock_gettime(CLOCK_REALTIME, &now));
	return 0x40000000 | ((unsigned)now.tv_nsec + ++further);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int server = (int)BUILD(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
	int client = (int)BUILD(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
	int unbound = (int)BUILD(socket(AF_NETLINK, SOCK_DGRAM, NETLINK_ROUTE));
	struct sockaddr_nl name = { .nl_family = AF_NETLINK, .nl_pid = port(), .nl_groups = RTMGRP_NEIGH }, own[2], found;
	struct timeval time = { 3, 0 }, found_time;
	socklen_t length = sizeof name;
	int on = 1;
	BUILD(bind(server, (struct sockaddr *)&name, sizeof name));
	BUILD(getsockname(server, (struct sockaddr *)&own[0], &length));
	/* Above the mask of 32. */
	join(server, GROUP_ABOVE);
	join(unbound, RTNLGRP_TC);
	for (int i = 0; i < OPTIONS; i++)
		BUILD(setsockopt(server, options[i].level, options[i].name, &on, sizeof on));
	BUILD(setsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time));
	/* A group to send to needs a right: the peer of the other is a port, the kernel's. */
	struct sockaddr_nl peer = { .nl_family = AF_NETLINK, .nl_pid = geteuid() == 0 ? own[0].nl_pid : 0 };
	name = (struct sockaddr_nl){ .nl_family = AF_NETLINK, .nl_pid = port() };
	BUILD(bind(client, (struct sockaddr *)&name, sizeof name));
	BUILD(connect(client, (struct sockaddr *)&peer, sizeof peer));
	length = sizeof name;
	BUILD(getsockname(client, (struct sockaddr *)&own[1], &length));
	conform_ready();
	conform_wait();

	length = sizeof found;
	BUILD(getsockname(server, (struct sockaddr *)&found, &length));
	EXPECT("port", found.nl_pid, own[0].nl_pid);
	EXPECT("groups", found.nl_groups, RTMGRP_NEIGH);
	length = sizeof found;
	BUILD(getsockname(client, (struct sockaddr *)&found, &length));
	EXPECT("port of the client", found.nl_pid, own[1].nl_pid);
	length = sizeof found;
	BUILD(getpeername(client, (struct sockaddr *)&found, &length));
	EXPECT("peer", found.nl_pid, peer.nl_pid);
	EXPECT("a group above 32", is_member(server, GROUP_ABOVE), 1);
	EXPECT("a group below 33", is_member(server, RTNLGRP_NEIGH), 1);
	EXPECT("a group it is not in", is_member(server, RTNLGRP_TC), 0);
	EXPECT("a group without a port", is_member(unbound, RTNLGRP_TC), 1);
	length = sizeof found;
	BUILD(getsockname(unbound, (struct sockaddr *)&found, &length));
	EXPECT("no port", found.nl_pid, 0);
	for (int i = 0; i < OPTIONS; i++) {
		EXPECT(options[i].text, number(server, options[i].level, options[i].name), 1);
		EXPECT(options[i].text, number(client, options[i].level, options[i].name), 0);
	}
	length = sizeof found_time;
	BUILD(getsockopt(server, SOL_SOCKET, SO_RCVTIMEO, &found_time, &length));
	EXPECT("SO_RCVTIMEO", found_time.tv_sec, 3);
	EXPECT("type", number(unbound, SOL_SOCKET, SO_TYPE), SOCK_DGRAM);
	EXPECT("type", number(server, SOL_SOCKET, SO_TYPE), SOCK_RAW);
	conform_pass();
}
