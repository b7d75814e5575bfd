/*
 * Processes whose working directory has been removed: one in a directory that is there again, two in the same one, of which
 * there are descriptors, and one in that of an ended process in /proc.
 */
#include "conform.h"

static void leave(const char *name)
{
	BUILD(mkdir(conform_path(name), 0751));
	BUILD(chdir(conform_path(name)));
	BUILD(rmdir(conform_path(name)));
}

static void check(void)
{
	char path[4096];
	EXPECT("a path of it", getcwd(path, sizeof path) == NULL, 1);
	EXPECT("why there is none", errno, ENOENT);
	struct stat status;
	BUILD(stat(".", &status));
	EXPECT("links", status.st_nlink, 0);
	EXPECT("mode", status.st_mode & 07777, 0751);
	EXPECT_ERROR("a file is made in it", open("new", O_WRONLY | O_CREAT, 0600), ENOENT);
}

static void replaced(void *unused)
{
	(void)unused;
	umask(0);
	leave("again");
	BUILD(mkdir(conform_path("again"), 0700));
	conform_mark("left");
	conform_wait();
	check();
}

static ino_t inode_of(int folder)
{
	struct stat status;
	BUILD(fstat(folder, &status));
	return status.st_ino;
}

/* In the directory that another process has open, and is in. */
static void expect_own(int folder, int path_only)
{
	struct stat status;
	BUILD(stat(".", &status));
	EXPECT("inode of a descriptor", inode_of(folder), status.st_ino);
	EXPECT("inode of one with O_PATH", inode_of(path_only), status.st_ino);
}

static int folder, path_only;

static void shares(void *unused)
{
	(void)unused;
	conform_mark("shares");
	conform_wait();
	check();
	expect_own(folder, path_only);
}

static void ends(void *unused)
{
	(void)unused;
}

static void of_process(void *unused)
{
	(void)unused;
	char path[64];
	pid_t child = conform_spawn(ends, NULL);
	snprintf(path, sizeof path, "/proc/%d", child);
	/* It ends only when it is waited for. */
	BUILD(chdir(path));
	conform_join(child);
	conform_mark("ofprocess");
	conform_wait();
	char there[4096];
	EXPECT("a path of it", getcwd(there, sizeof there) == NULL, 1);
	EXPECT("why there is none", errno, ENOENT);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	umask(0);
	BUILD(mkdir(conform_path("gone"), 0751));
	folder = BUILD(open(conform_path("gone"), O_RDONLY | O_DIRECTORY));
	path_only = BUILD(open(conform_path("gone"), O_PATH));
	BUILD(rmdir(conform_path("gone")));
	leave("gone");
	int other = BUILD(open(".", O_RDONLY | O_DIRECTORY));
	BUILD(fchdir(folder));
	pid_t second = conform_spawn(shares, NULL), process = conform_spawn(of_process, NULL);
	pid_t child = conform_spawn(replaced, NULL);
	conform_await("left");
	conform_await("shares");
	conform_await("ofprocess");
	conform_ready();
	conform_wait();
	check();
	expect_own(folder, path_only);
	EXPECT("another one of that path", inode_of(other) != inode_of(folder), 1);
	conform_join(child);
	conform_join(second);
	conform_join(process);
	BUILD(rmdir(conform_path("again")));
	conform_pass();
}
