/* An urgent byte (MSG_OOB) of a Unix socket right behind a descriptor, where no look at the queue tells its place. */
#include "conform.h"
#include <sys/socket.h>

int main(int argc, char **argv)
{
	int pair[2];
	char bytes[8] = "", room[CMSG_SPACE(sizeof(int))] = "";
	conform_start(argc, argv);
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	struct iovec part = { .iov_base = "abc", .iov_len = 3 };
	struct msghdr header = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room };
	struct cmsghdr *control = CMSG_FIRSTHDR(&header);
	control->cmsg_level = SOL_SOCKET;
	control->cmsg_type = SCM_RIGHTS;
	control->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(control), &pair[0], sizeof(int));
	EXPECT("a descriptor", sendmsg(pair[0], &header, 0), 3);
	if (send(pair[0], "U", 1, MSG_OOB) != 1)
		conform_skip("Unix sockets have no urgent bytes here");
	conform_expect_refusal(getpid(), pair[1]);
	conform_ready();
	conform_wait();
	EXPECT("urgent byte", recv(pair[1], bytes, 1, MSG_OOB), 1);
	EXPECT("which it is", bytes[0], 'U');
	conform_expect_bytes("bytes before it", pair[1], "abc");
	conform_pass();
}
