/*
 * Network, UTS, mount and cgroup namespaces that belong to a user namespace of a process's own, with a network in which the
 * loopback device is up, shared with a child; another child has a network in which it is down.
 */
#include "namespaces.h"
#include <arpa/inet.h>
#include <sys/mount.h>

static void reach(void)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(7), .sin_addr = { htonl(INADDR_LOOPBACK) } };
	int listening = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0)), connected = (int)BUILD(socket(AF_INET, SOCK_STREAM, 0));
	BUILD(bind(listening, (struct sockaddr *)&address, sizeof address));
	BUILD(listen(listening, 1));
	BUILD(connect(connected, (struct sockaddr *)&address, sizeof address));
	BUILD(close(connected));
	BUILD(close(listening));
}

static void other(void *unused)
{
	(void)unused;
	BUILD(unshare(CLONE_NEWNET));
	EXPECT("loopback device of a new network", loopback(false) & IFF_UP, 0);
	/* It keeps an address. */
	loopback(true);
	struct ifreq request = { .ifr_name = "lo", .ifr_flags = 0 };
	int fd = (int)BUILD(socket(AF_INET, SOCK_DGRAM, 0));
	BUILD(ioctl(fd, SIOCSIFFLAGS, &request));
	BUILD(close(fd));
	conform_mark("other");
	conform_wait();
	EXPECT("loopback device that was down", loopback(false) & IFF_UP, 0);
}

static void child(void *unused)
{
	(void)unused;
	char name[65];
	conform_mark("child");
	conform_wait();
	EXPECT("child's loopback device", loopback(false) & IFF_UP, IFF_UP);
	BUILD(gethostname(name, sizeof name));
	EXPECT_TEXT("child's host name", name, "inside");
	conform_await("reached");
	reach();
	BUILD(mount("none", "/proc", "tmpfs", 0, NULL));
}

int main(int argc, char **argv)
{
	char name[65], before[64], after[64];
	conform_start(argc, argv);
	namespace_name("net", before, sizeof before);
	become_inside(0, CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS | CLONE_NEWCGROUP);
	namespace_name("net", after, sizeof after);
	if (strcmp(before, after) == 0)
		conform_fail("the network is the same");
	BUILD(sethostname("inside", 6));
	loopback(true);
	pid_t first = conform_spawn(child, NULL), second = conform_spawn(other, NULL);
	conform_await("child");
	conform_await("other");
	conform_ready();
	conform_wait();
	EXPECT("loopback device that was up", loopback(false) & IFF_UP, IFF_UP);
	BUILD(gethostname(name, sizeof name));
	EXPECT_TEXT("host name", name, "inside");
	reach();
	conform_mark("reached");
	conform_join(first);
	conform_join(second);
	conform_pass();
}
