/*
 * A container with a root directory of its own, in which the program itself is executed: nothing in it has the path under which
 * the job's own mounts show it. Files of it are open for reading, for writing, at their end, as places, and mapped; a folder
 * is looked around; a FIFO holds bytes; a child works in another folder, another one has another root directory.
 */
#include "namespaces.h"
#include <dirent.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/syscall.h>

static const char *const SYSTEM[] = { "bin", "etc", "lib", "lib32", "lib64", "libx32", "usr" };

static int reading, writing, adding, folder, place, fifo, mapped, locked, gone, renamed, temporary, folders;
static char *private, *shared;

static const char *in_root(const char *name)
{
	char path[4096];
	snprintf(path, sizeof path, "root/%s", name);
	return conform_path(path);
}

static void put(const char *path, const char *text)
{
	int fd = (int)BUILD(open(path, O_WRONLY | O_CREAT | O_EXCL, 0600));
	conform_write_all(fd, text, strlen(text));
	BUILD(close(fd));
}

static void bind_to(const char *from, const char *name, unsigned long flags)
{
	BUILD(mkdir(in_root(name), 0700));
	BUILD(mount(from, in_root(name), NULL, MS_BIND | flags, NULL));
}

/* Shows a folder of the system elsewhere, with a link to it where it is outside. */
static void show(const char *name)
{
	char outside[64], link[4096], place[64];
	snprintf(outside, sizeof outside, "/%s", name);
	snprintf(place, sizeof place, "all/%s", name);
	long length = readlink(outside, link, sizeof link - 1);
	if (length > 0) {
		link[length] = 0;
		BUILD(symlink(link, in_root(name)));
	} else if (access(outside, F_OK) == 0) {
		bind_to(outside, place, MS_REC);
		BUILD(symlink(place, in_root(name)));
	}
}

static const char *folder_of(const char *path)
{
	static char folder[4096];
	snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
	return folder;
}

/* Builds the container, and executes this program in it. */
static void enter(char **argv)
{
	char program[4096], inside[4200];
	long length = BUILD(readlink("/proc/self/exe", program, sizeof program - 1));
	program[length] = 0;
	snprintf(inside, sizeof inside, "/program%s", strrchr(program, '/'));
	BUILD(mkdir(conform_path("root"), 0700));
	BUILD(mkdir(conform_path("data"), 0700));
	become_inside(0, CLONE_NEWNS);
	BUILD(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
	BUILD(mount(conform_path("root"), conform_path("root"), NULL, MS_BIND, NULL));
	BUILD(mkdir(in_root("all"), 0700));
	for (size_t at = 0; at < sizeof SYSTEM / sizeof *SYSTEM; at++)
		show(SYSTEM[at]);
	bind_to(folder_of(program), "program", MS_REC);
	if (getenv("TMPDIR") != NULL)
		bind_to(getenv("TMPDIR"), "temporary", 0);
	bind_to("/proc", "proc", MS_REC);
	bind_to(conform_path("."), "work", 0);
	bind_to(conform_path("data"), "data", 0);
	bind_to(conform_path("data"), "ro", 0);
	BUILD(mount(NULL, in_root("ro"), NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL));
	BUILD(chdir(conform_path("root")));
	BUILD(syscall(SYS_pivot_root, ".", "."));
	BUILD(umount2(".", MNT_DETACH));
	BUILD(chdir("/"));
	BUILD(setenv("CONTAINER", "inside", 1));
	char *const words[] = { argv[0], "/work", NULL };
	BUILD(execv(inside, words));
}

static void check_path(const char *what, const char *link, const char *expected)
{
	char path[4096];
	long length = BUILD(readlink(link, path, sizeof path - 1));
	path[length] = 0;
	EXPECT_TEXT(what, path, expected);
}

static void check_descriptor(int fd, const char *expected)
{
	char link[64];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	check_path("path of a descriptor", link, expected);
}

static void check_around(int at)
{
	struct stat found, top, up;
	BUILD(fstatat(at, "rw", &found, 0));
	EXPECT_ERROR("what the job's root shows", fstatat(at, "../root", &found, 0), ENOENT);
	BUILD(stat("/", &top));
	BUILD(fstatat(at, "..", &up, 0));
	EXPECT("folder above", up.st_ino == top.st_ino && up.st_dev == top.st_dev, 1);
}

static void check_files(void)
{
	char link[64];
	check_descriptor(reading, "/ro/read");
	check_descriptor(writing, "/data/rw");
	check_descriptor(adding, "/data/log");
	check_descriptor(folder, "/data");
	check_descriptor(place, "/ro/read");
	check_around(folder);
	snprintf(link, sizeof link, "/proc/self/fd/%d", reading);
	EXPECT_ERROR("a file of a read-only mount, for writing", open(link, O_WRONLY), EROFS);
	EXPECT("offset", lseek(reading, 0, SEEK_CUR), 2);
	EXPECT("flags", fcntl(adding, F_GETFL) & (O_ACCMODE | O_APPEND), O_WRONLY | O_APPEND);
	int other = (int)BUILD(open("/data/rw", O_RDONLY));
	EXPECT_ERROR("a file that is locked", flock(other, LOCK_EX | LOCK_NB), EWOULDBLOCK);
	BUILD(close(other));
	EXPECT("private memory", memcmp(private, "Xapped", 6), 0);
	EXPECT("shared memory", memcmp(shared, "Yhared", 6), 0);
}

/* The lock of the parent, which has another descriptor of that file, too. */
static void check_record_lock(void)
{
	struct flock found = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	BUILD(fcntl(locked, F_GETLK, &found));
	EXPECT("record lock", found.l_type, F_RDLCK);
	EXPECT("length of a record lock", found.l_len, 3);
	EXPECT("whose record lock", found.l_pid, getppid());
}

static void child(void *unused)
{
	char path[4096];
	(void)unused;
	BUILD(chdir("/data"));
	conform_mark("child");
	conform_wait();
	BUILD(getcwd(path, sizeof path) != NULL ? 0 : -1);
	EXPECT_TEXT("working directory", path, "/data");
	check_files();
	check_record_lock();
	conform_write_all(adding, "child\n", 6);
}

/* Another root directory within the container, in which the marks are found all the same. */
static void below(void *unused)
{
	char path[4096], text[16] = "";
	struct stat found;
	(void)unused;
	BUILD(close(folders));
	BUILD(chroot("/work"));
	BUILD(chdir("/data"));
	int inside = (int)BUILD(open("/data/read", O_RDONLY));
	char *memory = conform_map(CONFORM_PAGE, PROT_READ, MAP_PRIVATE, inside);
	conform_mark("below");
	conform_wait();
	BUILD(getcwd(path, sizeof path) != NULL ? 0 : -1);
	EXPECT_TEXT("working directory below another root", path, "/data");
	EXPECT_ERROR("what lies above another root", stat("/../all", &found), ENOENT);
	EXPECT("memory", memcmp(memory, "0123456789", 10), 0);
	BUILD(read(inside, text, 10));
	EXPECT_TEXT("file", text, "0123456789");
	conform_read_file("read", text, sizeof text);
	EXPECT_TEXT("file of the working directory", text, "0123456789");
}

int main(int argc, char **argv)
{
	char program[4096], text[64] = "";
	conform_start(argc, argv);
	if (getenv("CONTAINER") == NULL)
		enter(argv);
	long length = BUILD(readlink("/proc/self/exe", program, sizeof program - 1));
	program[length] = 0;
	EXPECT("program inside", strncmp(program, "/program/", 9), 0);
	put("/data/read", "0123456789");
	put("/data/rw", "rw");
	put("/data/log", "begin\n");
	put("/data/mapped", "mapped file");
	put("/data/shared", "shared file");
	reading = (int)BUILD(open("/ro/read", O_RDONLY));
	BUILD(lseek(reading, 2, SEEK_SET));
	writing = (int)BUILD(open("/data/rw", O_RDWR));
	BUILD(lseek(writing, 1, SEEK_SET));
	BUILD(flock(writing, LOCK_EX));
	adding = (int)BUILD(open("/data/log", O_WRONLY | O_APPEND));
	folder = (int)BUILD(open("/data", O_RDONLY | O_DIRECTORY));
	place = (int)BUILD(open("/ro/read", O_PATH));
	put("/data/locked", "locked");
	locked = (int)BUILD(open("/data/locked", O_RDONLY));
	BUILD(open("/ro/locked", O_RDONLY));
	struct flock lock = { .l_type = F_RDLCK, .l_whence = SEEK_SET, .l_len = 3 };
	BUILD(fcntl(locked, F_SETLK, &lock));
	BUILD(mkfifo("/data/fifo", 0600));
	fifo = (int)BUILD(open("/data/fifo", O_RDWR));
	conform_write_all(fifo, "bytes", 5);
	put("/data/gone", "gone");
	gone = (int)BUILD(open("/data/gone", O_RDWR));
	BUILD(unlink("/data/gone"));
	put("/data/oldname", "renamed");
	renamed = (int)BUILD(open("/data/oldname", O_RDONLY));
	BUILD(link("/data/oldname", "/data/newname"));
	BUILD(unlink("/data/oldname"));
	if (getenv("TMPDIR") != NULL) {
		temporary = (int)BUILD(open("/temporary/kept", O_RDWR | O_CREAT | O_TRUNC, 0600));
		conform_write_all(temporary, "kept", 4);
		BUILD(lseek(temporary, 0, SEEK_SET));
	}
	folders = (int)BUILD(open("/proc/self/fd", O_RDONLY | O_DIRECTORY));
	mapped = (int)BUILD(open("/ro/mapped", O_RDONLY));
	private = conform_map(CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, mapped);
	*private = 'X';
	BUILD(close(mapped));
	mapped = (int)BUILD(open("/data/shared", O_RDWR));
	shared = conform_map(CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, mapped);
	*shared = 'Y';
	BUILD(close(mapped));
	check_files();
	pid_t process = conform_spawn(child, NULL);
	conform_await("child");
	BUILD(symlink(".", "/work/work"));
	pid_t other = conform_spawn(below, NULL);
	conform_await("below");
	conform_ready();
	conform_wait();
	check_path("program", "/proc/self/exe", program);
	check_files();
	conform_join(process);
	conform_join(other);
	conform_expect_bytes("file", reading, "23456789");
	conform_expect_bytes("FIFO", fifo, "bytes");
	conform_expect_bytes("file without a name", gone, "gone");
	conform_expect_bytes("file with another name", renamed, "renamed");
	if (temporary != 0)
		conform_expect_bytes("temporary file", temporary, "kept");
	BUILD(faccessat(folders, "0", F_OK, AT_SYMLINK_NOFOLLOW));
	conform_write_all(writing, "W", 1);
	conform_write_all(adding, "end\n", 4);
	conform_read_file("/data/log", text, sizeof text);
	EXPECT_TEXT("log", text, "begin\nchild\nend\n");
	conform_read_file("/data/rw", text, sizeof text);
	EXPECT_TEXT("file that is written", text, "rW");
	conform_read_file("/data/shared", text, sizeof text);
	EXPECT_TEXT("file that is mapped", text, "Yhared file");
	conform_pass();
}
