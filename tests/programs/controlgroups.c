/*
 * Control groups (cgroups(7)): a process in one that it has made, its child in one within that, another one that stays where
 * the job is.
 * conform: root
 */
#include "conform.h"
#include <limits.h>

/* Where groups of version 2, or of the first kind of version 1 that any process may come to, are seen. */
static const char *const mounts[] = {"/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/pids",
				     "/sys/fs/cgroup/freezer"};
static char outer[PATH_MAX], inner[PATH_MAX + 8];

static void groups_of(const char *process, char *text, size_t size)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%s/cgroup", process);
	int fd = BUILD(open(path, O_RDONLY));
	ssize_t length = BUILD(read(fd, text, size - 1));
	text[length] = 0;
	close(fd);
}

static int enter(const char *group)
{
	char path[PATH_MAX + 32];
	snprintf(path, sizeof path, "%s/cgroup.procs", group);
	int fd = open(path, O_WRONLY);
	if (fd < 0)
		return -1;
	ssize_t written = write(fd, "0", 1);
	close(fd);
	return written == 1 ? 0 : -1;
}

/* Makes a group in the job's own, if any mount shows that. */
static int make_outer(void)
{
	for (size_t i = 0; i < sizeof mounts / sizeof *mounts; i++) {
		snprintf(outer, sizeof outer, "%s/ckptd-conform-%d", mounts[i], getpid());
		rmdir(outer);
		if (mkdir(outer, 0755) == 0 && enter(outer) == 0)
			return 0;
		rmdir(outer);
	}
	return -1;
}

static void expect_group(const char *what, const char *end)
{
	char text[4096];
	groups_of("self", text, sizeof text);
	if (strstr(text, end) == NULL)
		conform_fail("%s: %s is in none of %s", what, end, text);
}

static void is_inside(void *unused)
{
	(void)unused;
	BUILD(mkdir(inner, 0755));
	BUILD(enter(inner));
	conform_mark("inside");
	conform_wait();
	expect_group("the child", strstr(inner, "/ckptd-conform"));
}

static void stays(void *unused)
{
	(void)unused;
	conform_mark("stays");
	conform_wait();
	char text[4096];
	groups_of("self", text, sizeof text);
	if (strstr(text, "ckptd-conform") != NULL)
		conform_fail("the one that stayed is in %s", text);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t other = conform_spawn(stays, NULL);
	conform_await("stays");
	if (make_outer() != 0)
		conform_skip("no control groups that a process may enter");
	snprintf(inner, sizeof inner, "%s/inner", outer);
	pid_t child = conform_spawn(is_inside, NULL);
	conform_await("inside");
	conform_ready();
	conform_wait();
	expect_group("the parent", strstr(outer, "/ckptd-conform"));
	conform_join(child);
	conform_join(other);
	/* It can't be removed while a process is in it. */
	char *end = strstr(outer, "/ckptd-conform");
	*end = 0;
	BUILD(enter(outer));
	*end = '/';
	rmdir(inner);
	rmdir(outer);
	conform_pass();
}
