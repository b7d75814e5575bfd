/*
 * Processes with another root directory: a file that is open below it and one that is open outside, a child that inherits the
 * root, a thread, and no right to change it once it was given up.
 *
 * conform: root
 */
#include "conform.h"
#include <pthread.h>

static const char *go;
static int outside;

static void waits(void)
{
	while (access(go, F_OK) != 0)
		conform_sleep_ms(5);
}

static void check_root(const char *who)
{
	struct stat root, file;
	char bytes[8] = "";
	BUILD(stat("/", &root));
	int fd = (int)BUILD(open("/inside", O_RDONLY));
	BUILD(read(fd, bytes, 6));
	EXPECT_TEXT(who, bytes, "inside");
	BUILD(close(fd));
	EXPECT_ERROR("file outside of the root", stat("/etc/passwd", &file), ENOENT);
	EXPECT_ERROR("above the root", stat("/../etc/passwd", &file), ENOENT);
}

static void *thread(void *unused)
{
	waits();
	check_root("file that a thread finds");
	return unused;
}

static void lives_below(void *unused)
{
	(void)unused;
	pthread_t other;
	char bytes[8] = "";
	outside = (int)BUILD(open(".", O_RDONLY | O_DIRECTORY));
	BUILD(chroot(conform_path("root")));
	int inside = (int)BUILD(open("/inside", O_RDONLY));
	/* Absolute paths begin at the new root from here on; relative ones reach what conform_* would. */
	BUILD(fchdir(outside));
	pid_t child = (pid_t)BUILD(fork());
	if (child != 0) {
		BUILD0(pthread_create(&other, NULL, thread, NULL));
		BUILD(setresuid(65534, 65534, 65534));
	}
	close((int)BUILD(openat(outside, child == 0 ? "m-child" : "m-parent", O_WRONLY | O_CREAT, 0600)));
	waits();
	check_root("file that a process finds");
	EXPECT("file below the root that was open", pread(inside, bytes, 6, 0), 6);
	EXPECT_TEXT("what it holds", bytes, "inside");
	if (child == 0)
		_exit(0);
	EXPECT_ERROR("another root", chroot("/"), EPERM);
	BUILD0(pthread_join(other, NULL));
	conform_join(child);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("root"), 0755));
	BUILD(chmod(conform_path("."), 0777));
	int fd = (int)BUILD(open(conform_path("root/inside"), O_WRONLY | O_CREAT, 0644));
	conform_write_all(fd, "inside", 6);
	BUILD(close(fd));
	BUILD(chdir(conform_path(".")));
	go = "go";
	pid_t child = conform_spawn(lives_below, NULL);
	while (access("m-child", F_OK) != 0 || access("m-parent", F_OK) != 0)
		conform_sleep_ms(5);
	conform_ready();
	conform_wait();
	conform_join(child);
	conform_pass();
}
