/*
 * The number of an open file's inode, in the session directory and outside of it: databases compare the one that they
 * remember with that of the path.
 */
#include "conform.h"

static const char *paths[2];
static int files[2];
static struct stat known[2];

static void look(void)
{
	struct stat found;
	for (int i = 0; i < 2; i++) {
		BUILD(fstat(files[i], &found));
		EXPECT("inode of the descriptor", found.st_ino, known[i].st_ino);
		BUILD(stat(paths[i], &found));
		EXPECT("inode of the path", found.st_ino, known[i].st_ino);
		EXPECT("size", found.st_size, known[i].st_size);
	}
}

static void grow_and_shrink(void *unused)
{
	static bool longer;
	(void)unused;
	look();
	for (int i = 0; i < 2; i++) {
		known[i].st_size = longer ? 4 : 9;
		BUILD(ftruncate(files[i], known[i].st_size));
	}
	longer = !longer;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char inside[] = "/tmp/ckptd-conform-XXXXXX", outside[] = "/var/tmp/ckptd-conform-XXXXXX";
	files[0] = BUILD(mkstemp(inside));
	files[1] = BUILD(mkstemp(outside));
	paths[0] = inside;
	paths[1] = outside;
	for (int i = 0; i < 2; i++) {
		conform_write_all(files[i], "1234", 4);
		BUILD(fstat(files[i], &known[i]));
	}
	conform_ready();
	conform_wait_with(grow_and_shrink, NULL);
	look();
	for (int i = 0; i < 2; i++)
		BUILD(unlink(paths[i]));
	conform_pass();
}
