/* Holes, and zeros that are no holes, of files that the image carries: a deleted one, one with a name, a memfd. */
#include "conform.h"

enum { UNIT = 65536, SIZE = 40 * UNIT, FILES = 3 };

/* Where data begin and end, up to a number of places; how many there are. */
static int map(int fd, off_t *places, int most)
{
	int count = 0;
	for (off_t at = 0; count + 2 <= most;) {
		off_t data = lseek(fd, at, SEEK_DATA);
		if (data < 0)
			break;
		at = BUILD(lseek(fd, data, SEEK_HOLE));
		places[count++] = data;
		places[count++] = at;
	}
	BUILD(lseek(fd, 7, SEEK_SET));
	return count;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	static const char *const what[FILES] = { "deleted file", "file of a session directory", "memfd" };
	off_t before[FILES][64], after[64];
	int fds[FILES], counts[FILES];
	static char block[UNIT];
	fds[0] = (int)BUILD(open(conform_path("deleted"), O_RDWR | O_CREAT, 0600));
	fds[1] = (int)BUILD(open(conform_path("named"), O_RDWR | O_CREAT, 0600));
	fds[2] = (int)BUILD(memfd_create("sparse", 0));
	BUILD(unlink(conform_path("deleted")));
	for (int i = 0; i < FILES; i++) {
		BUILD(ftruncate(fds[i], SIZE));
		conform_fill(block, sizeof block, 1);
		EXPECT(what[i], pwrite(fds[i], block, UNIT, 2 * UNIT), UNIT);
		EXPECT(what[i], pwrite(fds[i], block, 4096, 5 * UNIT), 4096);
		/* A hole of one page between data. */
		EXPECT(what[i], pwrite(fds[i], block, 4096, 5 * UNIT + 8192), 4096);
		EXPECT(what[i], pwrite(fds[i], block, UNIT, 30 * UNIT), UNIT);
		counts[i] = map(fds[i], before[i], 64);
	}
	conform_ready();
	conform_wait();
	for (int i = 0; i < FILES; i++) {
		struct stat stat;
		BUILD(fstat(fds[i], &stat));
		EXPECT(what[i], stat.st_size, SIZE);
		EXPECT(what[i], lseek(fds[i], 0, SEEK_CUR), 7);
		EXPECT_BETWEEN("blocks", stat.st_blocks * 512, 2 * UNIT, 4 * UNIT);
		EXPECT(what[i], map(fds[i], after, 64), counts[i]);
		for (int j = 0; j < counts[i]; j++)
			EXPECT(what[i], after[j], before[i][j]);
		EXPECT(what[i], pread(fds[i], block, UNIT, 30 * UNIT), UNIT);
		conform_verify(what[i], block, UNIT, 1);
	}
	conform_pass();
}
