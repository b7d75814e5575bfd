/*
 * A private mapping of a file: pages that were written are the process's own, the others are the file's. So are pages of zeros,
 * also where a child would not get them.
 */
#include "conform.h"

enum { PAGE = CONFORM_PAGE, PAGES = 64, SIZE = PAGE * PAGES };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	static char contents[SIZE];
	const char *path = conform_path("file");
	int fd = BUILD(open(path, O_RDWR | O_CREAT, 0600));
	conform_fill(contents, SIZE, 1);
	conform_write_all(fd, contents, SIZE);
	char *map = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd);
	char *beyond = conform_map(SIZE + 8 * PAGE, PROT_READ, MAP_PRIVATE, fd);
	char *apart = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd);
	BUILD(madvise(apart, SIZE, MADV_DONTFORK));
	memset(apart + PAGE, 0, PAGE);
	memset(map + 3 * PAGE, 0, PAGE);
	close(fd);
	for (int i = 0; i < PAGES; i += 3 + (i == 0) * 3)
		conform_fill(map + i * PAGE, PAGE, 100 + (unsigned)i);
	conform_ready();
	conform_wait();
	for (int i = 0; i < PAGES; i++) {
		if (i == 3)
			EXPECT("a page that was zeroed", map[i * PAGE], 0);
		else if (i % 3 == 0)
			conform_verify("written page", map + i * PAGE, PAGE, 100 + (unsigned)i);
		else
			EXPECT("page of the file", memcmp(map + i * PAGE, contents + i * PAGE, PAGE), 0);
	}
	EXPECT("a page of the file that a child would not get", memcmp(apart, contents, PAGE), 0);
	EXPECT("a zeroed one of those", apart[PAGE + 5], 0);
	EXPECT("page beyond the end of the file faults", conform_faults(beyond + SIZE + PAGE, false), 1);
	fd = BUILD(open(path, O_RDONLY));
	static char now[SIZE];
	conform_read_all(fd, now, SIZE);
	EXPECT("file under a private mapping", memcmp(now, contents, SIZE), 0);
	conform_pass();
}
