/* Namespaces of a program's own. */
#ifndef NAMESPACES_H
#define NAMESPACES_H
#include "conform.h"
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>

/* The kernel's name of a namespace of this process. */
static inline void namespace_name(const char *file, char *name, size_t size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/self/ns/%s", file);
	long length = BUILD(readlink(path, name, size - 1));
	name[length] = 0;
}

static inline void write_text(const char *path, const char *text)
{
	int fd = (int)BUILD(open(path, O_WRONLY));
	conform_write_all(fd, text, strlen(text));
	BUILD(close(fd));
}

/* Enters a user namespace in which this user is `inside`. */
static inline void become_inside(unsigned inside, int others)
{
	char map[64];
	unsigned user = geteuid(), group = getegid();
	if (unshare(CLONE_NEWUSER | others) != 0)
		conform_skip("user namespaces are forbidden here");
	write_text("/proc/self/setgroups", "deny");
	snprintf(map, sizeof map, "%u %u 1\n", inside, user);
	write_text("/proc/self/uid_map", map);
	snprintf(map, sizeof map, "%u %u 1\n", inside, group);
	write_text("/proc/self/gid_map", map);
	EXPECT("user inside", getuid(), inside);
	EXPECT("group inside", getgid(), inside);
}

/* Mounts a file system in memory in this folder, in namespaces of its own. */
static inline void mount_inside(const char *folder)
{
	BUILD(mkdir(conform_path(folder), 0700));
	become_inside(0, CLONE_NEWNS);
	BUILD(mount("none", conform_path(folder), "tmpfs", 0, NULL));
}

/* Flags of the loopback device; `set`: makes it go up. */
static inline int loopback(bool set)
{
	struct ifreq request = { .ifr_name = "lo" };
	int fd = (int)BUILD(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
	BUILD(ioctl(fd, SIOCGIFFLAGS, &request));
	int flags = request.ifr_flags;
	if (set) {
		request.ifr_flags |= IFF_UP;
		BUILD(ioctl(fd, SIOCSIFFLAGS, &request));
	}
	BUILD(close(fd));
	return flags;
}
#endif
