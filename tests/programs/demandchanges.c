/*
 * Memory that is filled only when it is touched is what it was, or zeros, whatever is done to it before.
 * conform: held
 */
#include "demand.inc"

enum { PAGES = 512 };

static char *given, *moved, *grown, *shrunk, *replaced, *split, *closed, *read_into, *written, *inherited, *dropped, *kept;

static void look_again(void *unused)
{
	(void)unused;
	expect_pages("grandchild", inherited + 128 * PAGE, 128, 9128);
}

static void look(void *unused)
{
	(void)unused;
	expect_pages("child", inherited, 64, 9000);
	BUILD(madvise(inherited + 64 * PAGE, 32 * PAGE, MADV_DONTNEED));
	expect_zeros("child, given back", inherited + 64 * PAGE, 32);
	char *place = mremap(inherited + 256 * PAGE, 256 * PAGE, 512 * PAGE, MREMAP_MAYMOVE);
	if (place == MAP_FAILED)
		conform_fail("mremap: %s", strerror(errno));
	expect_pages("child, moved", place, 256, 9256);
	expect_zeros("child, grown", place + 256 * PAGE, 256);
	conform_join(conform_spawn(look_again, NULL));
	put_pages(inherited + 96 * PAGE, 32, 1);
	expect_pages("child, written", inherited + 96 * PAGE, 32, 1);
}

static void move_and_resize(void)
{
	char *place = anonymous(PAGES);
	if (mremap(moved, PAGES * PAGE, PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) != place)
		conform_fail("mremap: %s", strerror(errno));
	/* And once more, in two parts, the second to where the first was. */
	char *other = anonymous(PAGES);
	if (mremap(place, PAGES / 2 * PAGE, PAGES / 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, other) != other)
		conform_fail("mremap: %s", strerror(errno));
	char *second = place + PAGES / 2 * PAGE;
	if (mremap(second, PAGES / 2 * PAGE, PAGES / 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, place) != place)
		conform_fail("mremap: %s", strerror(errno));
	expect_pages("second half, moved", place, PAGES / 2, 1000 + PAGES / 2);
	expect_pages("first half, moved", other, PAGES / 2, 1000);
	/* Old memory where other memory was. */
	char *back = mmap(second, PAGES / 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (back != second)
		conform_fail("mmap: %s", strerror(errno));
	expect_zeros("mapped where memory was", back, PAGES / 2);

	char *longer = mremap(grown, PAGES * PAGE, 3 * PAGES * PAGE, MREMAP_MAYMOVE);
	if (longer == MAP_FAILED)
		conform_fail("mremap: %s", strerror(errno));
	expect_zeros("grown", longer + PAGES * PAGE, 2 * PAGES);
	expect_pages("what has grown", longer, PAGES, 2000);
	if (mremap(shrunk, PAGES * PAGE, PAGE, 0) != shrunk)
		conform_fail("mremap: %s", strerror(errno));
	if (mremap(shrunk, PAGE, PAGES * PAGE, MREMAP_MAYMOVE) == MAP_FAILED)
		conform_fail("mremap: %s", strerror(errno));
}

static void through_the_kernel(void)
{
	int ends[2];
	BUILD(pipe(ends));
	conform_write_all(ends[1], written, 8 * PAGE);
	/* Across the border of two pages, neither of which is there. */
	conform_read_all(ends[0], read_into + 64 * PAGE + 10, 8 * PAGE);
	for (size_t at = 0; at < 8; at++) {
		char page[PAGE];
		memcpy(page, read_into + 64 * PAGE + 10 + at * PAGE, PAGE);
		conform_verify("read", page, PAGE, 7000 + at);
	}
	char expected[PAGE];
	conform_fill(expected, PAGE, 8064);
	if (memcmp(expected, read_into + 64 * PAGE, 10) != 0)
		conform_fail("what stands before what was read is other than it was");
	conform_fill(expected, PAGE, 8072);
	if (memcmp(expected + 10, read_into + 72 * PAGE + 10, PAGE - 10) != 0)
		conform_fail("what stands behind what was read is other than it was");
	close(ends[0]);
	close(ends[1]);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	given = anonymous(PAGES), moved = anonymous(PAGES), grown = anonymous(PAGES), shrunk = anonymous(PAGES);
	replaced = anonymous(PAGES), split = anonymous(PAGES), closed = anonymous(PAGES), read_into = anonymous(PAGES);
	written = anonymous(PAGES), inherited = anonymous(PAGES), dropped = anonymous(PAGES), kept = anonymous(PAGES);
	char *sparse = anonymous(PAGES);
	put_pages(given, PAGES, 500);
	put_pages(moved, PAGES, 1000);
	put_pages(grown, PAGES, 2000);
	put_pages(shrunk, PAGES, 3000);
	put_pages(replaced, PAGES, 4000);
	put_pages(split, PAGES, 5000);
	put_pages(closed, PAGES, 6000);
	put_pages(written, PAGES, 7000);
	put_pages(read_into, PAGES, 8000);
	put_pages(inherited, PAGES, 9000);
	put_pages(dropped, PAGES, 10000);
	put_pages(kept, PAGES, 11000);
	for (size_t at = 0; at < PAGES; at += 7)
		put_pages(sparse + at * PAGE, 1, 12000 + at);
	conform_ready();
	conform_wait();

	/* One that was touched, and others that were not. */
	expect_pages("touched", given + 100 * PAGE, 1, 600);
	BUILD(madvise(given, 300 * PAGE, MADV_DONTNEED));
	expect_zeros("given back", given, 300);
	expect_pages("not given back", given + 300 * PAGE, PAGES - 300, 800);
	BUILD(madvise(dropped, PAGES * PAGE, MADV_FREE));
	put_pages(dropped + 5 * PAGE, 1, 77);
	expect_pages("written after MADV_FREE", dropped + 5 * PAGE, 1, 77);
	move_and_resize();
	BUILD(munmap(replaced, PAGES * PAGE));
	char *again = mmap(replaced, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	if (again != replaced)
		conform_fail("mmap: %s", strerror(errno));
	expect_zeros("unmapped and mapped", replaced, PAGES);
	for (size_t at = 3; at < PAGES; at += 16)
		BUILD(mprotect(split + at * PAGE, PAGE, PROT_READ));
	expect_pages("split", split, PAGES, 5000);
	BUILD(mprotect(closed, PAGES * PAGE, PROT_NONE));
	if (!conform_faults(closed + 10 * PAGE, false))
		conform_fail("memory without rights can be read");
	BUILD(mprotect(closed, PAGES * PAGE, PROT_READ));
	expect_pages("closed for a time", closed, PAGES, 6000);
	through_the_kernel();
	conform_join(conform_spawn(look, NULL));
	expect_pages("parent", inherited, PAGES, 9000);
	for (size_t at = 0; at < PAGES; at++)
		if (at % 7 == 0)
			expect_pages("sparse", sparse + at * PAGE, 1, 12000 + at);
		else
			expect_zeros("nothing", sparse + at * PAGE, 1);

	let_fill();
	expect_pages("filled behind", kept, PAGES, 11000);
	expect_zeros("given back, in the end", given, 300);
	expect_zeros("replaced, in the end", replaced, PAGES);
	expect_pages("written, in the end", dropped + 5 * PAGE, 1, 77);
	conform_pass();
}
