/* Memory given back is zero afterwards, before and after a restart alike; MADV_FREE and mincore work on it. */
#include "conform.h"

enum { PAGE = CONFORM_PAGE, PAGES = 256, SIZE = PAGE * PAGES };

static void expect_zero(const char *what, const char *memory, size_t size)
{
	for (size_t at = 0; at < size; at++)
		if (memory[at] != 0)
			conform_fail("%s: byte %zu, expected 0, found %d", what, at, memory[at]);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char *earlier = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	char *later = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	conform_fill(earlier, SIZE, 1);
	conform_fill(later, SIZE, 2);
	BUILD(madvise(earlier, SIZE / 2, MADV_DONTNEED));
	conform_ready();
	conform_wait();
	expect_zero("given back before", earlier, SIZE / 2);
	conform_verify("kept", later, SIZE, 2);
	BUILD(madvise(later, SIZE, MADV_DONTNEED));
	expect_zero("given back after", later, SIZE);
	BUILD(madvise(earlier + SIZE / 2, SIZE / 2, MADV_FREE));
	unsigned char resident[PAGES];
	BUILD(mincore(later, SIZE, resident));
	char *moved = mremap(later, SIZE, 2 * SIZE, MREMAP_MAYMOVE);
	if (moved == MAP_FAILED)
		conform_fail("mremap: %s", strerror(errno));
	expect_zero("enlarged", moved, 2 * SIZE);
	conform_pass();
}
