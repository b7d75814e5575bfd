/*
 * Files outside of the session directories that are written in place, by write(2) and through a mapping, that become
 * shorter, and that lose their names: a restart puts each back as it was at the checkpoint.
 * conform: work=/var/tmp
 */
#include "conform.h"

enum { RECORDS = 300, SIZE = 2 * CONFORM_PAGE };

static int records, journal = -1;
static long *map, rounds;

/* One transaction: the journal of the one before has gone, the records are rewritten, and there is a new journal. */
static void work(void *unused)
{
	(void)unused;
	const char *path = conform_path("records-journal");
	if (journal >= 0) {
		close(journal);
		BUILD(unlink(path));
	}
	rounds++;
	for (int i = 0; i < RECORDS; i++)
		EXPECT("bytes written", pwrite(records, &rounds, sizeof rounds, (off_t)(i * sizeof rounds)), sizeof rounds);
	BUILD(ftruncate(records, (off_t)((RECORDS + rounds % 2) * sizeof rounds)));
	map[0] = map[SIZE / sizeof *map - 1] = rounds;
	journal = BUILD(open(path, O_RDWR | O_CREAT | O_EXCL, 0640));
	conform_write_all(journal, &rounds, sizeof rounds);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct stat found;
	long number;
	records = BUILD(open(conform_path("records"), O_RDWR | O_CREAT, 0600));
	int mapped = BUILD(open(conform_path("mapped"), O_RDWR | O_CREAT, 0600));
	BUILD(ftruncate(mapped, SIZE));
	map = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, mapped);
	close(mapped);
	work(NULL);
	conform_ready();
	conform_wait_with(work, NULL);
	for (int i = 0; i < RECORDS; i++) {
		EXPECT("bytes read", pread(records, &number, sizeof number, (off_t)(i * sizeof number)), sizeof number);
		EXPECT("record", number, rounds);
	}
	BUILD(fstat(records, &found));
	EXPECT("size", found.st_size, (RECORDS + rounds % 2) * (long)sizeof number);
	EXPECT("start of the mapping", map[0], rounds);
	EXPECT("end of the mapping", map[SIZE / sizeof *map - 1], rounds);
	mapped = BUILD(open(conform_path("mapped"), O_RDONLY));
	EXPECT("bytes of the mapped file", pread(mapped, &number, sizeof number, 0), sizeof number);
	EXPECT("the mapped file", number, rounds);
	EXPECT("bytes of the journal", pread(journal, &number, sizeof number, 0), sizeof number);
	EXPECT("the journal", number, rounds);
	int again = BUILD(open(conform_path("records-journal"), O_RDONLY));
	EXPECT("bytes of the journal by its name", read(again, &number, sizeof number), sizeof number);
	EXPECT("the journal by its name", number, rounds);
	BUILD(fstat(again, &found));
	EXPECT("mode of the journal", found.st_mode & 07777, 0640);
	work(NULL);
	conform_pass();
}
