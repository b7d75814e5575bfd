/*
 * Files among mounts of a process's own that somebody holds who can't be given them later: a message that is not received,
 * a process without a free number, and one that another mount covers.
 */
#include "namespaces.h"
#include <sys/mount.h>
#include <sys/resource.h>

static int file, covered, told[2];

static void put(const char *name, const char *text)
{
	int fd = (int)BUILD(open(conform_path(name), O_WRONLY | O_CREAT | O_EXCL, 0600));
	conform_write_all(fd, text, strlen(text));
	BUILD(close(fd));
}

static void message(struct msghdr *header, struct iovec *part, char *control, size_t size)
{
	memset(header, 0, sizeof *header);
	header->msg_iov = part;
	header->msg_iovlen = 1;
	header->msg_control = control;
	header->msg_controllen = size;
}

static void send_file(int to, int sent)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = { 0 };
	char byte = 0;
	struct iovec part = { &byte, 1 };
	struct msghdr header;
	message(&header, &part, control, sizeof control);
	struct cmsghdr *head = CMSG_FIRSTHDR(&header);
	head->cmsg_level = SOL_SOCKET;
	head->cmsg_type = SCM_RIGHTS;
	head->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(head), &sent, sizeof sent);
	BUILD(sendmsg(to, &header, 0));
}

static int receive_file(int from)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = { 0 };
	char byte;
	int received;
	struct iovec part = { &byte, 1 };
	struct msghdr header;
	message(&header, &part, control, sizeof control);
	BUILD(recvmsg(from, &header, 0));
	EXPECT("a message with a descriptor", CMSG_FIRSTHDR(&header) != NULL, 1);
	memcpy(&received, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof received);
	return received;
}

/* All of its numbers are taken. */
static void full(void *unused)
{
	(void)unused;
	int own = (int)BUILD(open(conform_path("bound/full"), O_RDONLY));
	BUILD(lseek(own, 1, SEEK_SET));
	int last = own;
	for (int fd = own; fd < 256; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			last = fd;
	for (int fd = 0; fd < last; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			BUILD(dup2(own, fd));
	struct rlimit limit = { .rlim_cur = (rlim_t)last + 1, .rlim_max = (rlim_t)last + 1 };
	BUILD(setrlimit(RLIMIT_NOFILE, &limit));
	conform_write_all(told[1], "x", 1);
	conform_wait();
	conform_expect_bytes("file of a process without a free number", own, "ull");
}

int main(int argc, char **argv)
{
	int pair[2];
	char byte;
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("data"), 0700));
	BUILD(mkdir(conform_path("data/over"), 0700));
	BUILD(mkdir(conform_path("data/above"), 0700));
	BUILD(mkdir(conform_path("bound"), 0700));
	put("data/file", "0123456789");
	put("data/full", "full");
	put("data/over/file", "covered");
	become_inside(0, CLONE_NEWNS);
	BUILD(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	BUILD(mount(conform_path("data"), conform_path("bound"), NULL, MS_BIND, NULL));
	file = (int)BUILD(open(conform_path("bound/file"), O_RDONLY));
	covered = (int)BUILD(open(conform_path("bound/over/file"), O_RDONLY));
	char above[4096];
	snprintf(above, sizeof above, "%s", conform_path("data/above"));
	BUILD(mount(above, conform_path("bound/over"), NULL, MS_BIND, NULL));
	BUILD(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	send_file(pair[0], file);
	BUILD(pipe(told));
	pid_t child = conform_spawn(full, NULL);
	BUILD(read(told[0], &byte, 1));
	conform_ready();
	conform_wait();
	int received = receive_file(pair[1]);
	BUILD(lseek(file, 4, SEEK_SET));
	EXPECT("offset of the same description", lseek(received, 0, SEEK_CUR), 4);
	conform_expect_bytes("file in a message", received, "456789");
	conform_expect_bytes("file that a mount covers", covered, "covered");
	conform_join(child);
	conform_pass();
}
