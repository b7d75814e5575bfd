/*
 * User namespaces within others, as bubblewrap makes them for ordinary users: what belongs to the outer one can't be changed
 * from the inner one. A child in the same ones; in one of two cases a process has stayed in the outer one.
 */
#include "namespaces.h"
#include <sys/mount.h>

struct kind {
	const char *folder, *name, *mark;
	bool stays;
};

static const struct kind ALONE = { "alone", "outer-alone", "in-alone", false };
static const struct kind SHARED = { "shared", "outer-shared", "in-shared", true };

/* The user of the outer one comes to be another in an inner one. */
static void go_in(unsigned inside)
{
	char map[64];
	BUILD(unshare(CLONE_NEWUSER));
	snprintf(map, sizeof map, "%u 0 1\n", inside);
	write_text("/proc/self/uid_map", map);
	snprintf(map, sizeof map, "%u 0 1\n", inside + 1);
	write_text("/proc/self/gid_map", map);
}

static void check_outer(const struct kind *kind)
{
	char name[64], path[64], text[16] = "";
	BUILD(gethostname(name, sizeof name));
	EXPECT_TEXT("host name", name, kind->name);
	snprintf(path, sizeof path, "%s/file", kind->folder);
	conform_read_file(conform_path(path), text, sizeof text);
	EXPECT_TEXT("file in memory", text, "kept");
}

static void check(const struct kind *kind)
{
	char map[256];
	unsigned inside, outside, count;
	check_outer(kind);
	EXPECT("user", getuid(), 700);
	EXPECT("group", getgid(), 701);
	conform_read_file("/proc/self/uid_map", map, sizeof map);
	EXPECT("map", sscanf(map, "%u %u %u", &inside, &outside, &count), 3);
	EXPECT("user outside", outside == 0 && inside == 700 && count == 1, 1);
	EXPECT_ERROR("host name of the outer one's", sethostname("x", 1), EPERM);
	EXPECT_ERROR("mounts of the outer one's", mount("none", conform_path(kind->folder), "tmpfs", 0, NULL), EPERM);
	BUILD(unshare(CLONE_NEWUTS));
	BUILD(sethostname("inner", 5));
}

static void child(void *argument)
{
	const struct kind *kind = argument;
	conform_mark(kind->mark);
	conform_wait();
	check(kind);
	if (kind->stays)
		conform_mark("checked");
}

static void stays(void *argument)
{
	conform_mark("stays");
	conform_wait();
	check_outer(argument);
	conform_await("checked");
	EXPECT("user of the outer one", getuid(), 0);
	BUILD(sethostname("changed", 7));
	conform_mark("changed");
}

static void lives(void *argument)
{
	const struct kind *kind = argument;
	char path[64], mark[64];
	pid_t outer = 0;
	become_inside(0, CLONE_NEWNS | CLONE_NEWUTS);
	BUILD(sethostname(kind->name, strlen(kind->name)));
	BUILD(mkdir(conform_path(kind->folder), 0700));
	BUILD(mount("none", conform_path(kind->folder), "tmpfs", 0, NULL));
	snprintf(path, sizeof path, "%s/file", kind->folder);
	close((int)BUILD(open(conform_path(path), O_WRONLY | O_CREAT, 0600)));
	write_text(conform_path(path), "kept");
	if (kind->stays) {
		outer = conform_spawn(stays, argument);
		conform_await("stays");
	}
	go_in(700);
	pid_t other = conform_spawn(child, argument);
	conform_await(kind->mark);
	snprintf(mark, sizeof mark, "ready-%s", kind->folder);
	conform_mark(mark);
	conform_wait();
	conform_join(other);
	if (kind->stays) {
		char name[64];
		conform_await("changed");
		BUILD(gethostname(name, sizeof name));
		EXPECT_TEXT("name that the outer one has changed", name, "changed");
		conform_join(outer);
		return;
	}
	check(kind);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t alone = conform_spawn(lives, (void *)&ALONE);
	pid_t shared = conform_spawn(lives, (void *)&SHARED);
	conform_await("ready-alone");
	conform_await("ready-shared");
	conform_ready();
	conform_wait();
	conform_join(alone);
	conform_join(shared);
	conform_pass();
}
