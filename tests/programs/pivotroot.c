/*
 * Another root, as containers make one (pivot_root(2)): all of the job's files, read-only, but for one folder; files in memory,
 * terminals and devices of its own; a child in it, whose working directory is in memory.
 */
#include "namespaces.h"
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

static char *folder, places[4096];

static const char *below(const char *top, const char *path)
{
	static char joined[8192];
	snprintf(joined, sizeof joined, "%s%s", top, path);
	return joined;
}

static void check(void)
{
	struct stat found, null;
	char path[4096], text[16] = "";
	EXPECT_ERROR("new folder in the root", mkdir("/ckptd-new", 0700), EROFS);
	EXPECT_ERROR("new folder in a system's", mkdir("/usr/ckptd-new", 0700), EROFS);
	BUILD(stat("/dev", &found));
	BUILD(stat("/dev/null", &null));
	EXPECT("device", null.st_rdev, 0x103);
	EXPECT("mount upon a mount", null.st_dev != found.st_dev, 1);
	BUILD(readlink("/dev/fd", path, sizeof path));
	BUILD(stat("/dev/pts/ptmx", &found));
	EXPECT("mode of ptmx", found.st_mode & 0777, 0666);
	snprintf(path, sizeof path, "%s/hidden/kept", folder);
	conform_read_file(path, text, sizeof text);
	EXPECT_TEXT("file in memory", text, "kept");
	conform_read_file("/proc/self/mountinfo", places, sizeof places);
	EXPECT("mounts of the root that was", strstr(places, "/newroot") == NULL, 1);
}

static void child(void *unused)
{
	char path[4096], wanted[4096];
	(void)unused;
	snprintf(wanted, sizeof wanted, "%s/hidden", folder);
	BUILD(chdir(wanted));
	conform_mark("child");
	conform_wait();
	BUILD(getcwd(path, sizeof path) != NULL ? 0 : -1);
	EXPECT_TEXT("working directory", path, wanted);
	BUILD(access("kept", F_OK));
	check();
}

static void mount_device(const char *top, const char *name)
{
	char at[4096];
	snprintf(at, sizeof at, "%s%s", top, name);
	close((int)BUILD(open(at, O_WRONLY | O_CREAT, 0600)));
	BUILD(mount(name, at, NULL, MS_BIND, NULL));
}

/* All mounts below, read-only as far as a path leads to them. */
static void close_all(const char *top)
{
	FILE *all = fopen("/proc/self/mountinfo", "r");
	char line[4096], at[4096];
	size_t length = strlen(top);
	while (fgets(line, sizeof line, all) != NULL) {
		struct statvfs of_upper;
		unsigned long flags = MS_RDONLY;
		if (sscanf(line, "%*s %*s %*s %*s %4095s", at) != 1 || strncmp(at, top, length) != 0)
			continue;
		BUILD(statvfs(at, &of_upper));
		flags |= of_upper.f_flag & (ST_NOSUID | ST_NODEV | ST_NOEXEC | ST_NOATIME | ST_NODIRATIME);
		flags |= of_upper.f_flag & ST_RELATIME ? MS_RELATIME : 0;
		BUILD(mount(NULL, at, NULL, MS_REMOUNT | MS_BIND | flags, NULL));
	}
	fclose(all);
}

int main(int argc, char **argv)
{
	char top[4096], at[8192];
	conform_start(argc, argv);
	folder = realpath(conform_path("."), NULL);
	BUILD(mkdir(conform_path("newroot"), 0700));
	BUILD(mkdir(conform_path("hidden"), 0700));
	snprintf(top, sizeof top, "%s/newroot", folder);
	become_inside(0, CLONE_NEWNS);
	BUILD(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	BUILD(mount("/", top, NULL, MS_BIND | MS_REC, NULL));
	close_all(top);
	snprintf(at, sizeof at, "%s%s", top, folder);
	BUILD(mount(folder, at, NULL, MS_BIND, NULL));
	BUILD(mount("tmpfs", below(at, "/hidden"), "tmpfs", 0, NULL));
	close((int)BUILD(open(below(at, "/hidden/kept"), O_WRONLY | O_CREAT, 0600)));
	write_text(below(at, "/hidden/kept"), "kept");
	BUILD(mount("tmpfs", below(top, "/dev"), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755"));
	BUILD(mkdir(below(top, "/dev/pts"), 0755));
	BUILD(mount("devpts", below(top, "/dev/pts"), "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"));
	BUILD(symlink("/proc/self/fd", below(top, "/dev/fd")));
	mount_device(top, "/dev/null");
	mount_device(top, "/dev/zero");
	BUILD(chdir(top));
	BUILD(syscall(SYS_pivot_root, ".", "."));
	BUILD(umount2(".", MNT_DETACH));
	BUILD(chdir("/"));
	check();
	pid_t process = conform_spawn(child, NULL);
	conform_await("child");
	conform_ready();
	conform_wait();
	check();
	conform_join(process);
	conform_pass();
}
