/* A netlink socket with an answer of the kernel's that nobody has read: it can't be put back. */
#include "conform.h"
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fd = (int)BUILD(socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE));
	struct { struct nlmsghdr head; struct rtgenmsg body; } request = {
		{ sizeof request, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 9, 0 }, { AF_UNSPEC } };
	BUILD(send(fd, &request, sizeof request, 0));
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	EXPECT("an answer", poll(&ready, 1, 5000), 1);
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	union { struct nlmsghdr head; char room[32768]; } got;
	EXPECT_BETWEEN("bytes of the answer", recv(fd, &got, sizeof got, MSG_DONTWAIT), sizeof got.head, sizeof got);
	EXPECT("to the request", got.head.nlmsg_seq, 9);
	conform_pass();
}
