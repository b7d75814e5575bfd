/*
 * A device node of the job's own that is deleted while it is open: its mode, its owner, and its name in /proc.
 * conform: root
 */
#include "conform.h"
#include <sys/sysmacros.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	const char *path = conform_path("node");
	if (mknod(path, S_IFCHR | 0600, makedev(1, 5)) == -1)
		conform_skip("no device nodes can be made here");
	BUILD(chmod(path, 0640));
	BUILD(chown(path, 1234, 2345));
	int fd = open(path, O_RDWR), second = open(path, O_RDONLY);
	if (fd == -1)
		conform_skip("device nodes have no effect here");
	BUILD(unlink(path));
	conform_ready();
	conform_wait();
	struct stat stat, other;
	BUILD(fstat(fd, &stat));
	BUILD(fstat(second, &other));
	EXPECT("links", stat.st_nlink, 0);
	EXPECT("mode", stat.st_mode, S_IFCHR | 0640);
	EXPECT("user", stat.st_uid, 1234);
	EXPECT("group", stat.st_gid, 2345);
	EXPECT("device", stat.st_rdev, makedev(1, 5));
	EXPECT("inode of the second descriptor", other.st_ino, stat.st_ino);
	char link[64], found[4096] = { 0 }, wanted[4096], byte = 1;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	BUILD(readlink(link, found, sizeof found - 1));
	snprintf(wanted, sizeof wanted, "%s (deleted)", path);
	EXPECT_TEXT("its name in /proc", found, wanted);
	EXPECT("read", read(second, &byte, 1), 1);
	EXPECT("byte", byte, 0);
	conform_pass();
}
