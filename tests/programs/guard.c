/* Guard pages (PROT_NONE, with bytes below them that come back) and guard regions (MADV_GUARD_INSTALL), also over a file. */
#include "conform.h"

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#define MADV_GUARD_REMOVE 103
#endif
enum { PAGE = CONFORM_PAGE, SIZE = 16 * PAGE };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char *pages = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	char *region = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	conform_fill(pages, SIZE, 1);
	conform_fill(region, SIZE, 2);
	BUILD(mprotect(pages + 4 * PAGE, PAGE, PROT_NONE));
	bool regions = madvise(region + 8 * PAGE, 2 * PAGE, MADV_GUARD_INSTALL) == 0;
	/* In memory of files since Linux 6.15. */
	int file = BUILD(open(conform_path("guarded"), O_RDWR | O_CREAT | O_EXCL, 0600));
	BUILD(ftruncate(file, SIZE));
	char *shared = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file);
	conform_fill(shared, SIZE, 3);
	bool in_file = madvise(shared + 8 * PAGE, 2 * PAGE, MADV_GUARD_INSTALL) == 0;
	conform_ready();
	conform_wait();
	EXPECT("guard page faults", conform_faults(pages + 4 * PAGE, false), 1);
	EXPECT("page beside the guard page faults", conform_faults(pages + 5 * PAGE, true), 0);
	BUILD(mprotect(pages + 4 * PAGE, PAGE, PROT_READ));
	conform_verify("memory with a guard page", pages, SIZE, 1);
	if (regions) {
		EXPECT("guard region faults", conform_faults(region + 8 * PAGE, false), 1);
		EXPECT("guard region's last page faults", conform_faults(region + 9 * PAGE, true), 1);
		EXPECT("page after the guard region faults", conform_faults(region + 10 * PAGE, true), 0);
		BUILD(madvise(region + 8 * PAGE, 2 * PAGE, MADV_GUARD_REMOVE));
		EXPECT("byte of a removed guard region", region[8 * PAGE], 0);
	}
	conform_verify("memory before the guard region", region, 8 * PAGE, 2);
	if (in_file) {
		EXPECT("guard region of a file faults", conform_faults(shared + 8 * PAGE, false), 1);
		EXPECT("its last page faults", conform_faults(shared + 9 * PAGE, true), 1);
		EXPECT("page before it faults", conform_faults(shared + 7 * PAGE, true), 0);
		BUILD(madvise(shared + 8 * PAGE, 2 * PAGE, MADV_GUARD_REMOVE));
	}
	char *all = conform_map(SIZE, PROT_READ, MAP_SHARED, file);
	conform_verify("file with a guard region", all, SIZE, 3);
	conform_pass();
}
