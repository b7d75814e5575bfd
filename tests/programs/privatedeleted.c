/*
 * Private mappings of a file that is deleted and of a memfd, both still open: pages that were not written to show what is written
 * to the file, and what was written to them can be given up for it.
 */
#include "conform.h"

enum { PAGE = CONFORM_PAGE, SIZE = 8 * PAGE };

static void look(const char *what, int fd, char *memory)
{
	char byte = 0;
	EXPECT("byte of an own page", memory[PAGE], 'o');
	EXPECT("byte of another page", memory[2 * PAGE], 'f');
	BUILD(pread(fd, &byte, 1, PAGE));
	EXPECT("byte of the file", byte, 'f');
	BUILD(pwrite(fd, "n", 1, 3 * PAGE));
	if (memory[3 * PAGE] != 'n')
		conform_fail("%s: what was written to the file is not in its mapping", what);
	BUILD(madvise(memory + PAGE, PAGE, MADV_DONTNEED));
	EXPECT("byte of a page that was given up", memory[PAGE], 'f');
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int fds[2];
	char *maps[2], all[SIZE];
	memset(all, 'f', sizeof all);
	fds[0] = BUILD(open(conform_path("file"), O_RDWR | O_CREAT, 0600));
	fds[1] = BUILD(memfd_create("conform", 0));
	BUILD(fchmod(fds[1], 0600));
	for (int i = 0; i < 2; i++) {
		conform_write_all(fds[i], all, sizeof all);
		maps[i] = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fds[i]);
		maps[i][PAGE] = 'o';
	}
	BUILD(unlink(conform_path("file")));
	conform_ready();
	conform_wait();
	look("deleted file", fds[0], maps[0]);
	look("memfd", fds[1], maps[1]);
	conform_pass();
}
