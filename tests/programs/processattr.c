/*
 * Attributes of a process that no prctl(2) sets: personality, core files, file mode mask, readiness to be killed where
 * memory is short, memory policy of a thread.
 */
#include "conform.h"
#include <sys/personality.h>
#include <sys/syscall.h>

enum { INTERLEAVE = 3, STATIC_NODES = 1 << 15, BITS = 1024, WORDS = BITS / 8 / sizeof(long) };

static struct found {
	int personality, mask, has_policy, mode;
	unsigned long nodes[WORDS];
	char core[32], killing[32];
} before, after;

static void look(struct found *found)
{
	found->personality = personality(0xffffffff);
	found->mask = umask(0);
	umask(found->mask);
	found->has_policy = syscall(SYS_get_mempolicy, &found->mode, found->nodes, BITS + 1, 0, 0) == 0;
	conform_read_file("/proc/self/coredump_filter", found->core, sizeof found->core);
	conform_read_file("/proc/self/oom_score_adj", found->killing, sizeof found->killing);
}

static void put(const char *path, const char *text)
{
	int fd = (int)BUILD(open(path, O_WRONLY));
	conform_write_all(fd, text, strlen(text));
	close(fd);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(personality(ADDR_NO_RANDOMIZE | UNAME26 | STICKY_TIMEOUTS));
	umask(0027);
	put("/proc/self/coredump_filter", "0x15");
	put("/proc/self/oom_score_adj", "321");
	unsigned long first = 1;
	syscall(SYS_set_mempolicy, INTERLEAVE | STATIC_NODES, &first, sizeof first * 8);
	look(&before);
	conform_ready();
	conform_wait();
	look(&after);
	EXPECT("personality", after.personality, before.personality);
	EXPECT("personality", after.personality, ADDR_NO_RANDOMIZE | UNAME26 | STICKY_TIMEOUTS);
	EXPECT("umask", after.mask, 0027);
	EXPECT_TEXT("coredump_filter", after.core, "00000015\n");
	EXPECT_TEXT("oom_score_adj", after.killing, "321\n");
	EXPECT("has a memory policy", after.has_policy, before.has_policy);
	EXPECT("memory policy", after.mode, before.mode);
	EXPECT("its nodes", memcmp(after.nodes, before.nodes, sizeof after.nodes), 0);
	conform_pass();
}
