/*
 * A process that nobody may look into (PR_SET_DUMPABLE), with something that is refused: an urgent byte in a Unix socket right
 * behind a descriptor. It is as hidden as before.
 */
#include "conform.h"
#include <sys/prctl.h>
#include <sys/socket.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int pair[2];
	char byte = 0, room[CMSG_SPACE(sizeof(int))] = "";
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
	BUILD(signal(SIGTRAP, SIG_IGN) == SIG_ERR ? -1 : 0);
	BUILD(prctl(PR_SET_DUMPABLE, 0));
	conform_expect_refusal(getpid(), pair[1]);
	conform_ready();
	conform_wait();
	EXPECT("dumpable", prctl(PR_GET_DUMPABLE), 0);
	EXPECT("urgent byte", recv(pair[1], &byte, 1, MSG_OOB), 1);
	EXPECT("which", byte, 'U');
	/* It would end by that. */
	BUILD(raise(SIGTRAP));
	conform_pass();
}
