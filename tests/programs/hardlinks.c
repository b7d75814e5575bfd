/*
 * Files with several names, in the session directory and outside of it: both names open, one of them taken away and made again
 * all the time; and one that has lost the name by which it was opened first.
 */
#include "conform.h"

static char names[2][2][128];
static int files[2][2], moved[2];
/* 1: both names are there; 0: one is; 2: neither is sure. */
static int state[2];

static void expect_same(const char *what, int fd, const char *name)
{
	struct stat one, other;
	BUILD(fstat(fd, &one));
	if (stat(name, &other) == -1)
		conform_fail("%s: %s is gone", what, name);
	EXPECT(what, other.st_ino, one.st_ino);
}

static void look(void)
{
	for (int i = 0; i < 2; i++) {
		struct stat one, other;
		BUILD(fstat(files[i][0], &one));
		BUILD(fstat(files[i][1], &other));
		EXPECT("inode by the second descriptor", other.st_ino, one.st_ino);
		expect_same("inode by the first name", files[i][0], names[i][0]);
		if (state[i] == 1) {
			char link[64], found[256] = { 0 };
			expect_same("inode by the second name", files[i][0], names[i][1]);
			EXPECT("names", one.st_nlink, 2);
			snprintf(link, sizeof link, "/proc/self/fd/%d", files[i][1]);
			BUILD(readlink(link, found, sizeof found - 1));
			EXPECT_TEXT("second name in /proc", found, names[i][1]);
		}
	}
}

static void change(void *unused)
{
	static int rounds;
	(void)unused;
	look();
	if (++rounds % 10)
		return;
	for (int i = 0; i < 2; i++) {
		int before = state[i];
		state[i] = 2;
		if (before == 1) {
			BUILD(unlink(names[i][1]));
		} else {
			if (access(names[i][1], F_OK) == -1)
				BUILD(link(names[i][0], names[i][1]));
			int fd = BUILD(open(names[i][1], O_RDWR));
			BUILD(dup2(fd, files[i][1]));
			close(fd);
		}
		state[i] = before == 1 ? 0 : 1;
	}
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	for (int i = 0; i < 2; i++) {
		snprintf(names[i][0], sizeof names[i][0], "%s/ckptd-conform-XXXXXX", i ? "/var/tmp" : "/tmp");
		files[i][0] = BUILD(mkstemp(names[i][0]));
		strcat(strcpy(names[i][1], names[i][0]), "-link");
		conform_write_all(files[i][0], "bytes", 5);
		BUILD(link(names[i][0], names[i][1]));
		files[i][1] = BUILD(open(names[i][1], O_RDWR));
		state[i] = 1;
	}
	moved[0] = BUILD(open(conform_path("old"), O_RDWR | O_CREAT | O_EXCL, 0600));
	BUILD(link(conform_path("old"), conform_path("new")));
	BUILD(unlink(conform_path("old")));
	moved[1] = BUILD(open(conform_path("new"), O_RDWR));
	conform_ready();
	conform_wait_with(change, NULL);
	look();
	expect_same("inode of a file with another name", moved[0], conform_path("new"));
	expect_same("inode of that name", moved[1], conform_path("new"));
	conform_write_all(moved[0], "through the first", 17);
	conform_expect_bytes("bytes by the name", moved[1], "through the first");
	for (int i = 0; i < 2; i++) {
		unlink(names[i][0]);
		unlink(names[i][1]);
	}
	conform_pass();
}
