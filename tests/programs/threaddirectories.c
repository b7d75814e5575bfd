/*
 * Threads with directories and file mode creation masks of their own (unshare(2), CLONE_FS): one, and another that shares them with
 * it; one in a directory that is removed; one with another root directory, where the program may have that; and one that has the
 * main thread's.
 */
#include "conform.h"
#include <pthread.h>
#include <sched.h>

static pthread_barrier_t built;
static volatile int go, moved;

static void until(volatile int *what)
{
	while (!*what)
		conform_sleep_ms(5);
}

static void expect_directory(const char *who, const char *name)
{
	char expected[512], found[512];
	BUILD(realpath(conform_path(name), expected) == NULL ? -1 : 0);
	BUILD(getcwd(found, sizeof found) == NULL ? -1 : 0);
	EXPECT_TEXT(who, found, expected);
}

static void *with_another(void *unused)
{
	pthread_barrier_wait(&built);
	until(&go);
	expect_directory("directory of who shares it", "first");
	BUILD(chdir(conform_path("second")));
	EXPECT("mask of who shares it", umask(017), 031);
	moved = 1;
	return unused;
}

static void *apart(void *unused)
{
	BUILD(unshare(CLONE_FS));
	BUILD(chdir(conform_path("first")));
	umask(031);
	pthread_t other;
	BUILD0(pthread_create(&other, NULL, with_another, NULL));
	pthread_barrier_wait(&built);
	until(&go);
	until(&moved);
	expect_directory("directory of its own", "second");
	EXPECT("mask of its own", umask(0), 017);
	BUILD0(pthread_join(other, NULL));
	return unused;
}

static void *in_removed(void *unused)
{
	BUILD(unshare(CLONE_FS));
	BUILD(mkdir(conform_path("gone"), 0751));
	BUILD(chdir(conform_path("gone")));
	BUILD(rmdir(conform_path("gone")));
	pthread_barrier_wait(&built);
	until(&go);
	struct stat status;
	BUILD(stat(".", &status));
	EXPECT("links of a removed directory", status.st_nlink, 0);
	EXPECT("its mode", status.st_mode & 07777, 0751);
	EXPECT_ERROR("a file is made in it", open("new", O_WRONLY | O_CREAT, 0600), ENOENT);
	return unused;
}

static void *below(void *unused)
{
	struct stat file;
	BUILD(unshare(CLONE_FS));
	BUILD(chdir(conform_path("root")));
	bool is_below = chroot(".") == 0;
	pthread_barrier_wait(&built);
	until(&go);
	if (is_below) {
		BUILD(stat("/inside", &file));
		EXPECT_ERROR("file outside of the root", stat("/etc/passwd", &file), ENOENT);
	}
	BUILD(stat("inside", &file));
	return unused;
}

static void *plain(void *unused)
{
	pthread_barrier_wait(&built);
	until(&go);
	expect_directory("directory of the main thread", ".");
	return unused;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("first"), 0700));
	BUILD(mkdir(conform_path("second"), 0700));
	BUILD(mkdir(conform_path("root"), 0755));
	BUILD(close((int)BUILD(open(conform_path("root/inside"), O_WRONLY | O_CREAT, 0644))));
	BUILD(chdir(conform_path(".")));
	umask(022);
	void *(*const bodies[])(void *) = { apart, in_removed, below, plain };
	enum { THREADS = sizeof bodies / sizeof bodies[0] };
	pthread_t threads[THREADS];
	/* All of them, one that another one makes, and this one. */
	BUILD0(pthread_barrier_init(&built, NULL, THREADS + 2));
	for (int thread = 0; thread < THREADS; thread++)
		BUILD0(pthread_create(&threads[thread], NULL, bodies[thread], NULL));
	pthread_barrier_wait(&built);
	conform_ready();
	conform_wait();
	EXPECT("mask", umask(022), 022);
	expect_directory("directory", ".");
	go = 1;
	for (int thread = 0; thread < THREADS; thread++)
		BUILD0(pthread_join(threads[thread], NULL));
	EXPECT("mask after all", umask(0), 022);
	conform_pass();
}
