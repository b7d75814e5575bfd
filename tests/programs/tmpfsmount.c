/*
 * Files in memory that a process has mounted for itself in a mount namespace of its own: folders, links, modes, times, room, name;
 * one that is read-only, with a mount upon it.
 */
#include "namespaces.h"
#include <sys/mount.h>
#include <sys/statfs.h>

enum { BYTES = 70000, TIME = 1000000000 };

static void make_file(const char *path, size_t size, mode_t mode)
{
	struct timespec times[2] = { { TIME, 7 }, { TIME, 7 } };
	char *bytes = malloc(size);
	int fd = (int)BUILD(open(conform_path(path), O_WRONLY | O_CREAT | O_EXCL, 0600));
	conform_fill(bytes, size, (unsigned)size);
	conform_write_all(fd, bytes, size);
	BUILD(fchmod(fd, mode));
	BUILD(futimens(fd, times));
	BUILD(close(fd));
	free(bytes);
}

static void check_file(const char *path, size_t size, mode_t mode)
{
	struct stat found;
	char *bytes = malloc(size);
	BUILD(stat(conform_path(path), &found));
	EXPECT("mode", found.st_mode & 07777, mode);
	EXPECT("size", found.st_size, (long long)size);
	EXPECT("user", found.st_uid, getuid());
	EXPECT("group", found.st_gid, getgid());
	EXPECT("time", found.st_mtim.tv_sec, TIME);
	EXPECT("fraction of time", found.st_mtim.tv_nsec, 7);
	int fd = (int)BUILD(open(conform_path(path), O_RDONLY));
	conform_read_all(fd, bytes, size);
	conform_verify(path, bytes, size, (unsigned)size);
	BUILD(close(fd));
	free(bytes);
}

static void check(void)
{
	struct stat found;
	struct statfs room;
	static char mounts[1 << 16];
	char text[64] = "";
	check_file("memory/file", BYTES, 0640);
	check_file("memory/folder/other", 1, 0400);
	check_file("closed/file", 100, 0600);
	BUILD(readlink(conform_path("memory/folder/link"), text, sizeof text - 1));
	EXPECT_TEXT("link", text, "../file");
	BUILD(stat(conform_path("memory"), &found));
	EXPECT("mode of the root", found.st_mode & 07777, 01750);
	BUILD(stat(conform_path("memory/folder"), &found));
	EXPECT("mode of a folder", found.st_mode & 07777, 0711);
	BUILD(statfs(conform_path("memory"), &room));
	conform_read_file("/proc/self/mountinfo", mounts, sizeof mounts);
	EXPECT("name of what is mounted", strstr(mounts, " - tmpfs a\\040name ") != NULL, 1);
	EXPECT("room", room.f_blocks * room.f_bsize, 8 << 20);
	EXPECT_ERROR("new file where nothing may be written", mkdir(conform_path("closed/new"), 0700), EROFS);
	BUILD(stat(conform_path("closed/upon/inner"), &found));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("memory"), 0700));
	BUILD(mkdir(conform_path("closed"), 0700));
	become_inside(0, CLONE_NEWNS);
	BUILD(mount("a name", conform_path("memory"), "tmpfs", MS_NOSUID | MS_NODEV, "size=8m,mode=1750"));
	make_file("memory/file", BYTES, 0640);
	BUILD(mkdir(conform_path("memory/folder"), 0700));
	BUILD(chmod(conform_path("memory/folder"), 0711));
	make_file("memory/folder/other", 1, 0400);
	BUILD(symlink("../file", conform_path("memory/folder/link")));
	BUILD(mount("none", conform_path("closed"), "tmpfs", 0, NULL));
	make_file("closed/file", 100, 0600);
	BUILD(mkdir(conform_path("closed/upon"), 0700));
	BUILD(mount("none", conform_path("closed/upon"), "tmpfs", MS_NOEXEC | MS_NOATIME, NULL));
	BUILD(mkdir(conform_path("closed/upon/inner"), 0700));
	BUILD(mount(NULL, conform_path("closed"), NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
	check();
	conform_ready();
	conform_wait();
	check();
	BUILD(mkdir(conform_path("memory/new"), 0700));
	conform_pass();
}
