/*
 * Memory that is written in every way there is while checkpoints are taken one after the other: by the program, by calls, by
 * a child, thrown away, moved, mapped anew, shared with a child of fork, behind another program. Each page has
 * what was written to it last, in the next checkpoint, too, which knows which pages those are.
 */
#include "conform.h"
#include <sys/syscall.h>
#include <sys/uio.h>

enum { PAGES = 512, FILE_PAGES = 64, MOST_AT_ONCE = 24 };

/* What a page has. */
struct cell {
	uint64_t page, version;
};

static struct cell *at(char *memory, unsigned page)
{
	return (struct cell *)(memory + (size_t)page * CONFORM_PAGE);
}

/* Memory, and what is known of each of its pages; version 0: zeros, or what the file has. */
struct region {
	const char *name;
	char *memory;
	unsigned pages;
	uint64_t versions[PAGES];
};

static struct region plain = { .name = "anonymous memory", .pages = PAGES };
static struct region moved = { .name = "memory that moves", .pages = PAGES };
static struct region of_file = { .name = "private pages of a file", .pages = FILE_PAGES };
static char *lies_there;
static int file = -1;
static uint64_t last_version, seed = 88172645463325252ULL;

static unsigned any(unsigned below)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed % below;
}

static void expect(const struct region *region)
{
	for (unsigned page = 0; page < region->pages; page++) {
		struct cell *cell = at(region->memory, page);
		uint64_t version = region->versions[page];
		uint64_t wanted = region == &of_file || version != 0 ? page : 0;
		if (cell->version != version || cell->page != wanted)
			conform_fail("%s: page %u has page %llu, version %llu instead of %llu", region->name, page,
				     (unsigned long long)cell->page, (unsigned long long)cell->version,
				     (unsigned long long)version);
	}
}

/* By the program itself. */
static void write_some(struct region *region)
{
	for (unsigned left = 1 + any(MOST_AT_ONCE); left > 0; left--) {
		unsigned page = any(region->pages);
		*at(region->memory, page) = (struct cell){ page, ++last_version };
		region->versions[page] = last_version;
	}
}

/* By the kernel, which read(2) has write it. */
static void write_by_call(struct region *region)
{
	int ends[2];
	unsigned page = any(region->pages);
	struct cell cell = { page, ++last_version };
	BUILD(pipe(ends));
	conform_write_all(ends[1], &cell, sizeof cell);
	conform_read_all(ends[0], at(region->memory, page), sizeof cell);
	region->versions[page] = last_version;
	BUILD(close(ends[0]));
	BUILD(close(ends[1]));
}

/* By another process. */
static void write_by_child(struct region *region)
{
	unsigned page = any(region->pages);
	struct cell cell = { page, ++last_version };
	struct iovec here = { &cell, sizeof cell }, there = { at(region->memory, page), sizeof cell };
	pid_t parent = getpid(), child = BUILD(fork());
	if (child == 0) {
		/* What it writes to its own memory is nobody else's. */
		write_some(region);
		write_some(&moved);
		_exit(process_vm_writev(parent, &here, 1, &there, 1, 0) == (ssize_t)sizeof cell ? 0 : errno);
	}
	int status;
	BUILD(waitpid(child, &status, 0));
	/* Where one process may not write to another (Yama), nothing was written. */
	if (status == 0)
		region->versions[page] = last_version;
}

/* Thrown away: zeros, or the file, as the next who reads sees, or what is written next. */
static void throw_away(struct region *region)
{
	unsigned page = any(region->pages), count = 1 + any(MOST_AT_ONCE);
	if (count > region->pages - page)
		count = region->pages - page;
	BUILD(madvise(at(region->memory, page), (size_t)count * CONFORM_PAGE, MADV_DONTNEED));
	memset(&region->versions[page], 0, count * sizeof *region->versions);
	if (any(2) == 0)
		expect(region);
}

/* Another mapping in the place of some pages. */
static void map_anew(struct region *region)
{
	unsigned page = any(region->pages - 4);
	void *place = at(region->memory, page);
	if (mmap(place, 4 * CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != place)
		conform_fail("mmap: %s", strerror(errno));
	memset(&region->versions[page], 0, 4 * sizeof *region->versions);
}

/* To where it was before the last time: other memory has been there meanwhile. */
static void move(struct region *region)
{
	/* Half by half: rearranged, it is two mappings, which not every kernel moves at once. */
	size_t size = (size_t)region->pages * CONFORM_PAGE, half = size / 2;
	char *old = region->memory;
	for (size_t part = 0; part < size; part += half)
		if (mremap(old + part, half, half, MREMAP_MAYMOVE | MREMAP_FIXED, lies_there + part) != lies_there + part)
			conform_fail("mremap: %s", strerror(errno));
	region->memory = lies_there;
	lies_there = old;
	if (mmap(old, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != old)
		conform_fail("mmap: %s", strerror(errno));
	at(old, any(region->pages))->version = ++last_version;
}

/* Each half of it to the other half's place. */
static void rearrange(struct region *region)
{
	size_t half = (size_t)region->pages / 2 * CONFORM_PAGE;
	char *aside = conform_map(half, PROT_NONE, MAP_PRIVATE, -1);
	char *first = region->memory, *second = first + half;
	uint64_t kept[PAGES / 2];
	unsigned count = region->pages / 2;
	if (mremap(first, half, half, MREMAP_MAYMOVE | MREMAP_FIXED, aside) != aside ||
	    mremap(second, half, half, MREMAP_MAYMOVE | MREMAP_FIXED, first) != first ||
	    mremap(aside, half, half, MREMAP_MAYMOVE | MREMAP_FIXED, second) != second)
		conform_fail("mremap: %s", strerror(errno));
	memcpy(kept, region->versions, sizeof kept);
	memmove(region->versions, region->versions + count, sizeof kept);
	memcpy(region->versions + count, kept, sizeof kept);
	for (unsigned page = 0; page < region->pages; page++)
		if (region->versions[page] != 0)
			at(region->memory, page)->page = page;
}

static void tick(void *unused)
{
	(void)unused;
	write_some(&plain);
	write_some(&of_file);
	switch (any(9)) {
	case 0: write_by_call(&plain); break;
	case 1: write_by_call(&of_file); break;
	case 2: write_by_child(&plain); break;
	case 3: throw_away(&plain); break;
	case 4: throw_away(&of_file); break;
	case 5: map_anew(&plain); break;
	case 6: move(&moved); break;
	case 7: rearrange(&moved); break;
	case 8: write_some(&moved); break;
	}
}

static void write_file(void)
{
	file = BUILD(open(conform_path("pages"), O_RDWR | O_CREAT | O_EXCL, 0600));
	for (uint64_t page = 0; page < FILE_PAGES; page++) {
		struct cell cell = { page, 0 };
		BUILD(pwrite(file, &cell, sizeof cell, page * CONFORM_PAGE));
	}
	BUILD(ftruncate(file, (off_t)FILE_PAGES * CONFORM_PAGE));
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	size_t size = (size_t)PAGES * CONFORM_PAGE;
	write_file();
	plain.memory = conform_map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	moved.memory = conform_map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	lies_there = conform_map(size, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	of_file.memory = conform_map((size_t)FILE_PAGES * CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, file);
	for (unsigned left = 0; left < 40; left++) {
		write_some(&plain);
		write_some(&moved);
	}
	/* Half of them are never written again. */
	plain.pages = PAGES / 2;
	conform_ready();
	conform_wait_with(tick, NULL);
	plain.pages = PAGES;
	expect(&plain);
	expect(&moved);
	expect(&of_file);
	conform_pass();
}
