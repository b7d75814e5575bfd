/*
 * Files of a hugetlbfs that is mounted: with their names and deleted, open and mapped only, shared and private, one that is held
 * without being mapped, and one that a child writes to.
 */
#include "conform.h"

enum { HUGE_PAGE = 2 << 20 };
static char folder[256];
static unsigned char *named;

static void child(void *unused)
{
	(void)unused;
	conform_fill(named + HUGE_PAGE + 10, 900, 51);
	conform_mark("written");
	conform_await("told");
	conform_verify("what the parent has written since", named + 5000, 900, 52);
}

/* Of the size that most machines have, and where this user may make files. */
static void find_folder(void)
{
	static char mounts[1 << 20];
	conform_read_file("/proc/self/mounts", mounts, sizeof mounts);
	for (char *line = strtok(mounts, "\n"); line != NULL; line = strtok(NULL, "\n")) {
		char at[200], kind[32], options[200];
		if (sscanf(line, "%*s %199s %31s %199s", at, kind, options) == 3 && strcmp(kind, "hugetlbfs") == 0
		    && strstr(options, "pagesize=2M") != NULL && access(at, W_OK) == 0) {
			snprintf(folder, sizeof folder, "%s", at);
			return;
		}
	}
	conform_skip("no hugetlbfs is mounted");
}

static const char *path(const char *name)
{
	static char whole[512];
	snprintf(whole, sizeof whole, "%s/%s-%s", folder, name, conform_unique());
	return whole;
}

static int make(const char *name, int pages)
{
	int fd = (int)BUILD(open(path(name), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0640));
	BUILD(ftruncate(fd, (off_t)pages * HUGE_PAGE));
	return fd;
}

static unsigned char *map(int fd, int pages, int flags)
{
	void *made = mmap(NULL, (size_t)pages * HUGE_PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (made == MAP_FAILED)
		conform_skip("this machine has no huge pages to give (vm.nr_overcommit_hugepages)");
	return made;
}

static void expect_page(int fd, off_t size, long page)
{
	struct stat stat;
	BUILD(fstat(fd, &stat));
	EXPECT("size of a file", stat.st_size, size);
	EXPECT("bytes of its pages", stat.st_blksize, page);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	find_folder();
	int fd = make("named", 2);
	named = map(fd, 2, MAP_SHARED);
	conform_fill(named, 4000, 53);
	int closed = make("closed", 1);
	unsigned char *only_mapped = map(closed, 1, MAP_SHARED);
	conform_fill(only_mapped + 70, 4000, 54);
	BUILD(close(closed));
	int deleted = make("deleted", 2);
	BUILD(unlink(path("deleted")));
	unsigned char *heap = map(deleted, 2, MAP_SHARED);
	conform_fill(heap, 4000, 55);
	unsigned char *own = map(deleted, 2, MAP_PRIVATE);
	conform_fill(own + HUGE_PAGE, 4000, 56);
	int held = make("held", 1);
	unsigned char *passing = map(held, 1, MAP_SHARED);
	conform_fill(passing, 4000, 57);
	BUILD(munmap(passing, HUGE_PAGE));
	int of_private = make("private", 1);
	passing = map(of_private, 1, MAP_SHARED);
	conform_fill(passing, 4000, 58);
	BUILD(munmap(passing, HUGE_PAGE));
	unsigned char *private = map(of_private, 1, MAP_PRIVATE);
	conform_fill(private + 8192, 4000, 59);
	BUILD(close(of_private));
	pid_t pid = conform_spawn(child, NULL);
	conform_await("written");

	conform_ready();
	conform_wait();

	/* The test says so where the machine has had no huge ones to give. */
	bool ordinary = access(conform_path("ordinary"), F_OK) == 0;
	long page = ordinary ? sysconf(_SC_PAGESIZE) : HUGE_PAGE;
	conform_verify("a file with a name", named, 4000, 53);
	conform_verify("what the child had written", named + HUGE_PAGE + 10, 900, 51);
	conform_fill(named + 5000, 900, 52);
	conform_verify("a file that is mapped only", only_mapped + 70, 4000, 54);
	conform_verify("a deleted file", heap, 4000, 55);
	conform_verify("the deleted file, mapped privately", own, 4000, 55);
	conform_verify("pages that differ from it", own + HUGE_PAGE, 4000, 56);
	EXPECT("the deleted file's page there", heap[HUGE_PAGE], 0);
	conform_verify("a file that is mapped privately", private, 4000, 58);
	conform_verify("what differs from it", private + 8192, 4000, 59);
	expect_page(fd, 2 * HUGE_PAGE, page);
	expect_page(deleted, 2 * HUGE_PAGE, page);
	expect_page(held, HUGE_PAGE, page);
	passing = map(held, 1, MAP_SHARED);
	conform_verify("a file that is held", passing, 4000, 57);
	if (!ordinary) {
		static const char *const names[] = {"named", "closed", "held", "private"};
		for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
			struct stat stat, own_stat;
			BUILD(lstat(path(names[i]), &stat));
			EXPECT("its mode", stat.st_mode & 0777, 0640);
			BUILD(fstat(fd, &own_stat));
			EXPECT("the file by its name", i != 0 || stat.st_ino == own_stat.st_ino, 1);
			EXPECT("its device", stat.st_dev, own_stat.st_dev);
			BUILD(unlink(path(names[i])));
		}
		heap[9] ^= 0xff;
		EXPECT("what is written to the file, where it shows", own[9], heap[9]);
	}
	conform_mark("told");
	conform_join(pid);
	conform_pass();
}
