/*
 * Private mappings of deleted files that nobody has open: data that two processes have changed in part, code, one longer than its
 * file, one whose path another file has by now. They stay mappings of deleted files.
 */
#include "conform.h"

enum { PAGE = CONFORM_PAGE, SIZE = 8 * PAGE };

static char *data;

/* Code that returns 42, where it is known how to say that. */
#if defined(__x86_64__) || defined(__i386__)
static const unsigned char code[] = { 0xb8, 42, 0, 0, 0, 0xc3 };
#elif defined(__aarch64__)
static const unsigned char code[] = { 0x40, 0x05, 0x80, 0x52, 0xc0, 0x03, 0x5f, 0xd6 };
#else
static const unsigned char code[] = { 0 };
#endif

static char *map(const char *name, size_t size, int protection, const void *start, size_t length)
{
	static char all[SIZE];
	memset(all, 'f', sizeof all);
	memcpy(all, start, length);
	int fd = BUILD(open(conform_path(name), O_RDWR | O_CREAT | O_EXCL, 0755));
	conform_write_all(fd, all, sizeof all);
	char *memory = conform_map(size, protection, MAP_PRIVATE, fd);
	close(fd);
	BUILD(unlink(conform_path(name)));
	return memory;
}

/* The line of /proc/self/maps with this address: "NAME (deleted)", or with any name. */
static void expect_deleted(const void *memory, const char *name, bool exactly)
{
	static char maps[1 << 16];
	char start[32], wanted[4096];
	conform_read_file("/proc/self/maps", maps, sizeof maps);
	snprintf(start, sizeof start, "%lx-", (unsigned long)memory);
	char *line = strstr(maps, start);
	if (!line)
		conform_fail("%s is not mapped at %p", name, memory);
	line[strcspn(line, "\n")] = 0;
	snprintf(wanted, sizeof wanted, "%s (deleted)", conform_path(name));
	if (!strstr(line, exactly ? wanted : " (deleted)"))
		conform_fail("no mapping of a deleted file: %s", line);
}

static void look(const char *who, char own)
{
	EXPECT(who, data[PAGE], own);
	EXPECT(who, data[2 * PAGE], 'f');
	EXPECT(who, data[3 * PAGE], own == 'p' ? own : 'f');
	BUILD(madvise(data + 2 * PAGE, PAGE, MADV_DONTNEED));
	EXPECT(who, data[2 * PAGE], 'f');
	BUILD(madvise(data + 3 * PAGE, PAGE, MADV_DONTNEED));
	EXPECT(who, data[3 * PAGE], 'f');
	expect_deleted(data, "data", true);
}

static void child(void *unused)
{
	(void)unused;
	data[PAGE] = 'c';
	conform_mark("changed");
	conform_wait();
	look("byte of the child", 'c');
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	data = map("data", SIZE, PROT_READ | PROT_WRITE, "", 0);
	pid_t process = conform_spawn(child, NULL);
	conform_await("changed");
	data[PAGE] = data[3 * PAGE] = 'p';
	char *text = map("text", SIZE, PROT_READ | PROT_EXEC, code, sizeof code);
	char *closed = map("closed", SIZE, PROT_NONE, "", 0);
	char *longer = map("longer", SIZE + 4 * PAGE, PROT_READ | PROT_WRITE, "", 0);
	longer[SIZE - 1] = 'l';
	char *replaced = map("replaced", SIZE, PROT_READ, "old", 3);
	int fd = BUILD(open(conform_path("replaced"), O_WRONLY | O_CREAT | O_EXCL, 0600));
	conform_write_all(fd, "new", 3);
	close(fd);
	conform_ready();
	conform_wait();

	look("byte of the parent", 'p');
	conform_join(process);
	expect_deleted(text, "text", true);
	EXPECT("code", memcmp(text, code, sizeof code), 0);
	if (sizeof code > 1)
		EXPECT("what code returns", ((int (*)(void))(uintptr_t)text)(), 42);
	expect_deleted(closed, "closed", true);
	EXPECT("memory without rights", conform_faults(closed, false), true);
	BUILD(mprotect(closed, SIZE, PROT_READ));
	EXPECT("byte of it", closed[5 * PAGE], 'f');
	expect_deleted(longer, "longer", true);
	EXPECT("last byte of the file", longer[SIZE - 1], 'l');
	EXPECT("byte behind the file", conform_faults(longer + SIZE, false), true);
	expect_deleted(replaced, "replaced", false);
	EXPECT("content of what was replaced", memcmp(replaced, "oldf", 4), 0);
	char found[8];
	EXPECT("length of what replaces it", conform_read_file(conform_path("replaced"), found, sizeof found), 3);
	EXPECT_TEXT("content of what replaces it", found, "new");
	conform_pass();
}
