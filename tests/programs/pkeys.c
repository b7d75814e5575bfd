/*
 * Protection keys (pkeys(7)): which are allocated, what memory has them, and what threads may do with that memory. Memory that
 * can only be executed has a key of the kernel's.
 */
#include "conform.h"
#include <pthread.h>
#include <stdatomic.h>

enum { KEYS = 3, SIZE = 4 * CONFORM_PAGE };

static int keys[KEYS];
static char *areas[KEYS];
static atomic_bool built, checking;

/* The key of the memory at an address; -1: smaps does not say. */
static int key_of(const void *address)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	char line[512];
	unsigned long start, end;
	int found = -1, within = 0;
	while (file && found < 0 && fgets(line, sizeof line, file)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			within = start <= (unsigned long)address && (unsigned long)address < end;
		else if (within)
			sscanf(line, "ProtectionKey: %d", &found);
	}
	if (file)
		fclose(file);
	return found;
}

/* A thread that may do with the memory what the first one may not. */
static void *other(void *unused)
{
	(void)unused;
	BUILD(pkey_set(keys[1], 0));
	BUILD(pkey_set(keys[2], PKEY_DISABLE_WRITE));
	built = true;
	while (!checking)
		usleep(2000);
	EXPECT("right of the other thread", pkey_get(keys[1]), 0);
	EXPECT("right of the other thread", pkey_get(keys[2]), PKEY_DISABLE_WRITE);
	conform_verify("memory", areas[1], SIZE, 1);
	conform_verify("memory", areas[2], SIZE, 2);
	areas[1][0] ^= 1;
	areas[1][0] ^= 1;
	return NULL;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	for (int i = 0; i < KEYS; i++) {
		keys[i] = pkey_alloc(0, 0);
		if (keys[i] < 0)
			conform_skip("this machine has no protection keys");
		areas[i] = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
		conform_fill(areas[i], SIZE, i);
		if (i)
			BUILD(pkey_mprotect(areas[i], SIZE, PROT_READ | PROT_WRITE, keys[i]));
	}
	BUILD(pkey_free(keys[0]));
	void *code = conform_map(SIZE, PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	int of_code = key_of(code);
	pthread_t thread;
	BUILD0(pthread_create(&thread, NULL, other, NULL));
	while (!built)
		usleep(1000);
	BUILD(pkey_set(keys[1], PKEY_DISABLE_ACCESS));
	BUILD(pkey_set(keys[2], PKEY_DISABLE_WRITE));
	conform_ready();
	conform_wait();
	for (int i = 1; i < KEYS; i++)
		EXPECT("key of memory", key_of(areas[i]), keys[i]);
	EXPECT("right", pkey_get(keys[1]), PKEY_DISABLE_ACCESS);
	EXPECT("right", pkey_get(keys[2]), PKEY_DISABLE_WRITE);
	EXPECT("it can be read", conform_faults(areas[2], false), false);
	EXPECT("it faults when written", conform_faults(areas[2], true), true);
	/* A handler has no rights but the usual ones, and takes them along where it jumps to. */
	BUILD(pkey_set(keys[2], 0));
	EXPECT("it faults", conform_faults(areas[1], false), true);
	EXPECT("code has a key of its own", key_of(code) > 0, of_code > 0);
	EXPECT("memory without a key", key_of(areas[0]), 0);
	/* What is allocated is not handed out again; what is not can't be given to memory. */
	EXPECT_ERROR("key of nobody", pkey_mprotect(areas[0], SIZE, PROT_READ, 14), EINVAL);
	int fresh = (int)BUILD(pkey_alloc(0, 0));
	EXPECT("a new key is another", fresh != keys[1] && fresh != keys[2], true);
	BUILD(pkey_set(keys[1], 0));
	BUILD(pkey_set(keys[2], 0));
	for (int i = 0; i < KEYS; i++)
		conform_verify("memory", areas[i], SIZE, i);
	checking = true;
	BUILD0(pthread_join(thread, NULL));
	for (int i = 1; i < KEYS; i++)
		BUILD(pkey_free(keys[i]));
	conform_pass();
}
