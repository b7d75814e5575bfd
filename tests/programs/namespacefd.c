/*
 * Descriptors of namespaces: of the process's own of every kind, shared with a child, of a child's own, and one to return by.
 */
#include "namespaces.h"

static const char *const files[] = { "cgroup", "ipc", "mnt", "net", "pid", "user", "uts", "pid_for_children" };
enum { FILES = sizeof files / sizeof *files };

static int held[FILES], of_child;

static ino_t inode(int fd)
{
	struct stat status;
	BUILD(fstat(fd, &status));
	return status.st_ino;
}

static void check(const char *who)
{
	for (int i = 0; i < FILES; i++) {
		char path[64];
		struct stat status;
		snprintf(path, sizeof path, "/proc/self/ns/%s", files[i]);
		BUILD(stat(path, &status));
		EXPECT(who, inode(held[i]), status.st_ino);
		EXPECT("close-on-exec", fcntl(held[i], F_GETFD), i % 2 ? FD_CLOEXEC : 0);
	}
}

static void shares(void *unused)
{
	(void)unused;
	conform_mark("shares");
	conform_wait();
	check("child's namespace");
}

static void lives_apart(void *unused)
{
	(void)unused;
	int own = (int)BUILD(open("/proc/self/ns/uts", O_RDONLY));
	become_inside(0, CLONE_NEWUTS);
	BUILD(sethostname("apart", 5));
	conform_mark("apart");
	conform_wait();
	struct stat status;
	BUILD(stat("/proc/self/ns/uts", &status));
	if (status.st_ino == inode(own))
		conform_fail("a namespace of its own is the job's");
	conform_await("reached");
}

int main(int argc, char **argv)
{
	char path[64];
	conform_start(argc, argv);
	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof path, "/proc/self/ns/%s", files[i]);
		held[i] = (int)BUILD(open(path, O_RDONLY | (i % 2 ? O_CLOEXEC : 0)));
	}
	pid_t first = conform_spawn(shares, NULL), second = conform_spawn(lives_apart, NULL);
	conform_await("shares");
	conform_await("apart");
	snprintf(path, sizeof path, "/proc/%d/ns/uts", second);
	of_child = open(path, O_RDONLY);
	conform_ready();
	conform_wait();
	check("namespace");
	if (of_child >= 0 && geteuid() == 0) {
		char name[65];
		BUILD(setns(of_child, CLONE_NEWUTS));
		BUILD(gethostname(name, sizeof name));
		EXPECT_TEXT("host name of the child's namespace", name, "apart");
		BUILD(setns(held[6], CLONE_NEWUTS));
		check("namespace that was returned to");
	}
	conform_mark("reached");
	conform_join(first);
	conform_join(second);
	conform_pass();
}
