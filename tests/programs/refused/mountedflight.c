/* A file of a file system of a process's own, open nowhere but in a message that nobody has received. */
#include "../namespaces.h"

static void send_file(int to, int file)
{
	char control[CMSG_SPACE(sizeof(int))] = { 0 }, byte = 0;
	struct iovec part = { &byte, 1 };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control };
	struct cmsghdr *head = CMSG_FIRSTHDR(&message);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &file, sizeof file);
	BUILD(sendmsg(to, &message, 0));
}

int main(int argc, char **argv)
{
	int pair[2];
	conform_start(argc, argv);
	mount_inside("mounted");
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	int file = (int)BUILD(open(conform_path("mounted/file"), O_RDWR | O_CREAT, 0600));
	send_file(pair[0], file);
	BUILD(close(file));
	conform_expect_refusal(getpid(), pair[1]);
	conform_ready();
	conform_wait();
	conform_pass();
}
