/* O_PATH descriptors of symbolic links that are deleted: one alone, one whose name another has, one with its folder. */
#include "conform.h"

static void expect_link(const char *what, int fd, const char *target)
{
	char found[64] = "", proc[64], link[4096];
	struct stat stat;
	BUILD(fstat(fd, &stat));
	EXPECT(what, S_ISLNK(stat.st_mode), 1);
	EXPECT(what, stat.st_nlink, 0);
	EXPECT(what, stat.st_size, strlen(target));
	EXPECT(what, readlinkat(fd, "", found, sizeof found - 1), strlen(target));
	EXPECT_TEXT(what, found, target);
	EXPECT(what, fcntl(fd, F_GETFL) & O_PATH, O_PATH);
	snprintf(proc, sizeof proc, "/proc/self/fd/%d", fd);
	ssize_t length = BUILD(readlink(proc, link, sizeof link - 1));
	link[length] = 0;
	EXPECT(what, strstr(link, " (deleted)") != NULL, 1);
}

static int open_link(const char *target, const char *name)
{
	BUILD(symlink(target, name));
	return (int)BUILD(open(name, O_PATH | O_NOFOLLOW));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct stat found;
	char target[64] = "";
	BUILD(mkdir(conform_path("folder"), 0700));
	int alone = open_link("somewhere/else", conform_path("alone"));
	int replaced = open_link("old", conform_path("replaced"));
	int inside = open_link("/nowhere", conform_path("folder/inside"));
	BUILD(unlink(conform_path("alone")));
	BUILD(unlink(conform_path("replaced")));
	BUILD(symlink("new", conform_path("replaced")));
	BUILD(unlink(conform_path("folder/inside")));
	BUILD(rmdir(conform_path("folder")));
	conform_ready();
	conform_wait();
	expect_link("a deleted link", alone, "somewhere/else");
	expect_link("a link whose name another has", replaced, "old");
	expect_link("a link of a deleted folder", inside, "/nowhere");
	EXPECT_ERROR("the name of the deleted one", lstat(conform_path("alone"), &found), ENOENT);
	BUILD(readlink(conform_path("replaced"), target, sizeof target - 1));
	EXPECT_TEXT("the link that has the name", target, "new");
	conform_pass();
}
