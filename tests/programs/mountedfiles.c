/*
 * Files and folders that are open in a file system in memory that a process has mounted for itself: offsets that are shared,
 * flags, locks, one that is known by its path alone, one that is deleted.
 */
#include "namespaces.h"
#include <sys/file.h>
#include <sys/mount.h>

enum { BYTES = 500 << 10 };

static int file, copy, appended, folder, path, locked, read_only, deleted;

static int make(const char *name, int flags)
{
	int fd = (int)BUILD(open(conform_path(name), O_CREAT | flags, 0600));
	return fd;
}

static void check_child(void *unused)
{
	(void)unused;
	char bytes[4] = "";
	conform_await("go");
	conform_await("moved");
	BUILD(read(file, bytes, 3));
	EXPECT_TEXT("what a child reads on", bytes, "fgh");
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10 };
	int other = (int)BUILD(open(conform_path("mounted/locked"), O_RDWR));
	EXPECT_ERROR("lock of a description", fcntl(other, F_OFD_SETLK, &lock), EAGAIN);
	EXPECT_ERROR("lock of a file", flock((int)BUILD(open(conform_path("mounted/file"), O_RDONLY)), LOCK_EX | LOCK_NB), EWOULDBLOCK);
}

int main(int argc, char **argv)
{
	char bytes[16] = "";
	struct stat found, there;
	conform_start(argc, argv);
	mount_inside("mounted");
	file = make("mounted/file", O_RDWR);
	conform_write_all(file, "abcdefghij", 10);
	BUILD(flock(file, LOCK_EX));
	BUILD(lseek(file, 3, SEEK_SET));
	copy = (int)BUILD(dup(file));
	appended = make("mounted/appended", O_WRONLY | O_APPEND | O_NOATIME);
	conform_write_all(appended, "first", 5);
	BUILD(mkdir(conform_path("mounted/folder"), 0700));
	folder = (int)BUILD(open(conform_path("mounted/folder"), O_RDONLY | O_DIRECTORY));
	path = (int)BUILD(open(conform_path("mounted/folder"), O_PATH));
	locked = make("mounted/locked", O_RDWR);
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 5 };
	BUILD(fcntl(locked, F_OFD_SETLK, &lock));
	read_only = (int)BUILD(open(conform_path("mounted/appended"), O_RDONLY | O_CLOEXEC));
	BUILD(read(read_only, bytes, 2));
	deleted = make("mounted/deleted", O_RDWR);
	conform_write_all(deleted, "gone but kept", 13);
	BUILD(unlink(conform_path("mounted/deleted")));
	char *large = malloc(BYTES);
	conform_fill(large, BYTES, 1);
	int whole = make("mounted/large", O_RDWR);
	conform_write_all(whole, large, BYTES);
	pid_t child = conform_spawn(check_child, NULL);

	conform_ready();
	conform_wait();

	memset(bytes, 0, sizeof bytes);
	BUILD(read(copy, bytes, 2));
	EXPECT_TEXT("what is read on", bytes, "de");
	conform_mark("moved");
	conform_join(child);
	EXPECT("shared offset", BUILD(lseek(copy, 0, SEEK_CUR)), 8);
	EXPECT("flags", BUILD(fcntl(appended, F_GETFL)) & (O_ACCMODE | O_APPEND | O_NOATIME), O_WRONLY | O_APPEND | O_NOATIME);
	conform_write_all(appended, "last", 4);
	memset(bytes, 0, sizeof bytes);
	BUILD(read(read_only, bytes, sizeof bytes - 1));
	EXPECT_TEXT("what another description reads on", bytes, "rstlast");
	EXPECT("flags of a descriptor", BUILD(fcntl(read_only, F_GETFD)), FD_CLOEXEC);
	BUILD(close((int)BUILD(openat(folder, "new", O_CREAT | O_WRONLY, 0600))));
	BUILD(stat(conform_path("mounted/folder/new"), &found));
	BUILD(fstatat(path, "new", &there, 0));
	EXPECT("number of a file by its folder's path", there.st_ino, found.st_ino);
	EXPECT("its device", there.st_dev, found.st_dev);
	EXPECT_ERROR("reading a path", read(path, bytes, 1), EBADF);
	BUILD(fstat(file, &there));
	BUILD(stat(conform_path("mounted/file"), &found));
	EXPECT("number of the open file", there.st_ino, found.st_ino);
	BUILD(fstat(deleted, &there));
	EXPECT("names of a deleted file", there.st_nlink, 0);
	memset(bytes, 0, sizeof bytes);
	BUILD(pread(deleted, bytes, 13, 0));
	EXPECT_TEXT("its content", bytes, "gone but kept");
	memset(large, 0, BYTES);
	BUILD(lseek(whole, 0, SEEK_SET));
	conform_read_all(whole, large, BYTES);
	conform_verify("a large file", large, BYTES, 1);
	BUILD(umount(conform_path("mounted")) == -1 && errno == EBUSY ? 0 : -1);
	conform_pass();
}
