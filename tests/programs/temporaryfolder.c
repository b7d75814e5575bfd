/*
 * Temporary files that are closed: what lies in $TMPDIR is, after a restart, what the process left there at the
 * checkpoint, nothing more and nothing less, whatever it did there afterwards.
 */
#include "conform.h"
#include <dirent.h>

static char folder[512];
static long rounds;

static const char *path(const char *name, long number)
{
	static char buffers[4][600];
	static int next;
	char *buffer = buffers[next++ % 4];
	snprintf(buffer, sizeof buffers[0], "%s/%s", folder, name);
	if (number >= 0)
		snprintf(buffer + strlen(buffer), 32, "-%ld", number);
	return buffer;
}

static void put(const char *where, long number)
{
	FILE *file = fopen(where, "w");
	if (!file || fprintf(file, "%ld\n", number) < 0 || fclose(file))
		conform_fail("%s: %s", where, strerror(errno));
}

static void expect_number(const char *where, long number)
{
	long found = -1;
	FILE *file = fopen(where, "r");
	if (!file)
		conform_fail("%s: %s", where, strerror(errno));
	EXPECT(where, fscanf(file, "%ld", &found), 1);
	fclose(file);
	EXPECT(where, found, number);
}

/* Each round takes the files of the one before away. */
static void work(void *unused)
{
	(void)unused;
	long before = rounds++;
	put(path("rewritten", -1), rounds);
	BUILD(mkdir(path("folder", rounds), 0750));
	BUILD(symlink("rewritten", path("symlink", rounds)));
	put(path("file", rounds), rounds);
	BUILD(link(path("file", rounds), path("hardlink", rounds)));
	BUILD(mkfifo(path("fifo", rounds), 0600));
	BUILD(chmod(path("file", rounds), 0440));
	if (before == 0)
		return;
	BUILD(rmdir(path("folder", before)));
	BUILD(unlink(path("symlink", before)));
	BUILD(unlink(path("file", before)));
	BUILD(unlink(path("hardlink", before)));
	BUILD(unlink(path("fifo", before)));
}

static int count(void)
{
	int names = 0;
	DIR *listing = opendir(folder);
	if (!listing)
		conform_fail("%s: %s", folder, strerror(errno));
	while (readdir(listing))
		names++;
	closedir(listing);
	return names;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct stat found, other;
	char target[64] = "";
	const char *base = getenv("TMPDIR");
	snprintf(folder, sizeof folder, "%s/conform-XXXXXX", base ? base : "/tmp");
	if (!mkdtemp(folder))
		conform_fail("%s: %s", folder, strerror(errno));
	put(path("untouched", -1), 7);
	BUILD(mkdir(path("closed", -1), 0700));
	put(path("closed/untouched", -1), 8);
	BUILD(chmod(path("closed", -1), 0500));
	work(NULL);
	conform_ready();
	conform_wait_with(work, NULL);
	expect_number(path("untouched", -1), 7);
	expect_number(path("closed/untouched", -1), 8);
	expect_number(path("rewritten", -1), rounds);
	expect_number(path("file", rounds), rounds);
	BUILD(stat(path("file", rounds), &found));
	EXPECT("mode of the file", found.st_mode & 07777, 0440);
	EXPECT("names of the file", found.st_nlink, 2);
	BUILD(stat(path("hardlink", rounds), &other));
	EXPECT("the file by its other name", other.st_ino, found.st_ino);
	BUILD(readlink(path("symlink", rounds), target, sizeof target - 1));
	EXPECT_TEXT("target of the link", target, "rewritten");
	BUILD(lstat(path("folder", rounds), &found));
	EXPECT("mode of the folder", found.st_mode, S_IFDIR | 0750);
	BUILD(lstat(path("closed", -1), &found));
	EXPECT("mode of the other folder", found.st_mode, S_IFDIR | 0500);
	BUILD(lstat(path("fifo", rounds), &found));
	EXPECT("the FIFO", found.st_mode, S_IFIFO | 0600);
	EXPECT("names in the folder", count(), 2 + 3 + 5);
	work(NULL);
	BUILD(chmod(path("closed", -1), 0700));
	BUILD(unlink(path("closed/untouched", -1)));
	BUILD(rmdir(path("closed", -1)));
	BUILD(unlink(path("untouched", -1)));
	BUILD(unlink(path("rewritten", -1)));
	BUILD(rmdir(path("folder", rounds)));
	BUILD(unlink(path("symlink", rounds)));
	BUILD(unlink(path("file", rounds)));
	BUILD(unlink(path("hardlink", rounds)));
	BUILD(unlink(path("fifo", rounds)));
	BUILD(rmdir(folder));
	conform_pass();
}
