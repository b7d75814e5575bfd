/*
 * Where the pages of single mappings are to be (mbind(2)): private memory, shared memory, memory that children do not get,
 * memory that is locked when it is touched; beside memory without a policy of its own, in a thread that has one.
 */
#include "conform.h"
#include <sys/mman.h>
#include <sys/syscall.h>

/* include/uapi/linux/mempolicy.h */
enum { DEFAULT = 0, PREFERRED = 1, BIND = 2, INTERLEAVE = 3, LOCAL = 4, STATIC_NODES = 1 << 15, OF_ADDRESS = 2, BITS = 1024 };
enum { SIZE = 1 << 16, WORDS = BITS / 8 / sizeof(long) };

struct policy {
	int mode;
	unsigned long nodes[WORDS];
};

static struct policy of(const char *at)
{
	struct policy found = { 0 };
	BUILD(syscall(SYS_get_mempolicy, &found.mode, found.nodes, BITS + 1, at, OF_ADDRESS));
	return found;
}

static char *memory(int flags, int mode, unsigned long nodes)
{
	char *at = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		conform_fail("mmap: %s", strerror(errno));
	at[17] = 'p';
	if (mode >= 0)
		BUILD(syscall(SYS_mbind, at, SIZE, mode, nodes ? &nodes : NULL, sizeof nodes * 8, 0));
	return at;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int mode;
	if (syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0) != 0)
		conform_skip("no memory policies here");
	unsigned long first = 1;
	BUILD(syscall(SYS_set_mempolicy, INTERLEAVE, &first, sizeof first * 8));
	struct {
		const char *name;
		int mode;
		char *at;
		struct policy before;
	} all[] = {
		{ .name = "preferred", .mode = PREFERRED, .at = memory(MAP_PRIVATE, PREFERRED, 1) },
		{ .name = "bound", .mode = BIND | STATIC_NODES, .at = memory(MAP_PRIVATE, BIND | STATIC_NODES, 1) },
		{ .name = "local", .mode = LOCAL, .at = memory(MAP_PRIVATE, LOCAL, 0) },
		{ .name = "shared", .mode = BIND, .at = memory(MAP_SHARED, BIND, 1) },
		{ .name = "not for children", .mode = PREFERRED, .at = memory(MAP_PRIVATE, PREFERRED, 1) },
		{ .name = "locked", .mode = BIND, .at = memory(MAP_PRIVATE, BIND, 1) },
		{ .name = "none", .mode = DEFAULT, .at = memory(MAP_PRIVATE, -1, 0) },
	};
	enum { MANY = sizeof all / sizeof *all };
	BUILD(madvise(all[4].at, SIZE, MADV_DONTFORK));
	BUILD(syscall(SYS_mlock2, all[5].at, SIZE, MLOCK_ONFAULT));
	for (int i = 0; i < MANY; i++)
		all[i].before = of(all[i].at);
	conform_ready();
	conform_wait();

	for (int i = 0; i < MANY; i++) {
		struct policy now = of(all[i].at);
		EXPECT(all[i].name, now.mode, all[i].mode);
		EXPECT(all[i].name, memcmp(&now, &all[i].before, sizeof now), 0);
		EXPECT("its content", all[i].at[17], 'p');
	}
	EXPECT("the thread's", syscall(SYS_get_mempolicy, &mode, NULL, 0, NULL, 0), 0);
	EXPECT("the thread's", mode, INTERLEAVE);
	conform_pass();
}
