/* A socket in a network namespace in which there is no process any more. */
#include "../namespaces.h"

static int ends[2];

static void child(void *unused)
{
	(void)unused;
	become_inside(0, CLONE_NEWNET);
	int made = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	char byte = 0;
	struct iovec part = { .iov_base = &byte, .iov_len = 1 };
	union { struct cmsghdr header; char bytes[CMSG_SPACE(sizeof(int))]; } control = { 0 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
	rights->cmsg_level = SOL_SOCKET;
	rights->cmsg_type = SCM_RIGHTS;
	rights->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(rights), &made, sizeof made);
	BUILD(sendmsg(ends[0], &message, 0));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends));
	conform_join(conform_spawn(child, NULL));
	char byte;
	int fd;
	struct iovec part = { .iov_base = &byte, .iov_len = 1 };
	union { struct cmsghdr header; char bytes[CMSG_SPACE(sizeof(int))]; } control = { 0 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control };
	BUILD(recvmsg(ends[1], &message, 0));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	conform_pass();
}
