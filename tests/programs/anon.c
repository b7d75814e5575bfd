/* Anonymous memory: dense, sparse, read-only, executable, fresh zeros, huge; and one byte patterns that compress to nothing. */
#include "conform.h"

enum { MIB = 1 << 20, PAGE = CONFORM_PAGE, SPARSE_STEP = 37 * PAGE, SPARSE = 64 * MIB };

/* A function that returns 42. */
#if defined __x86_64__ || defined __i386__
/* mov eax, 42; ret */
static const unsigned char instructions[] = { 0xb8, 42, 0, 0, 0, 0xc3 };
#elif defined __aarch64__
/* mov w0, #42; ret */
static const unsigned instructions[] = { 0x52800540, 0xd65f03c0 };
#elif defined __arm__
/* mov r0, #42; bx lr */
static const unsigned instructions[] = { 0xe3a0002a, 0xe12fff1e };
#endif

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	int rw = PROT_READ | PROT_WRITE;
	char *dense = conform_map(8 * MIB, rw, MAP_PRIVATE, -1);
	char *sparse = conform_map(SPARSE, rw, MAP_PRIVATE | MAP_NORESERVE, -1);
	char *fixed = conform_map(MIB, rw, MAP_PRIVATE, -1), *code = conform_map(PAGE, rw, MAP_PRIVATE, -1);
	char *untouched = conform_map(16 * MIB, rw, MAP_PRIVATE, -1), *same = conform_map(MIB, rw, MAP_PRIVATE, -1);
	char *huge = conform_map(8 * MIB, rw, MAP_PRIVATE, -1);
	conform_fill(dense, 8 * MIB, 1);
	for (size_t at = 0; at < SPARSE; at += SPARSE_STEP)
		conform_fill(sparse + at, PAGE, (unsigned)at);
	conform_fill(fixed, MIB, 2);
	BUILD(mprotect(fixed, MIB, PROT_READ));
	memset(same, 0x5a, MIB);
	if (madvise(huge, 8 * MIB, MADV_HUGEPAGE) != 0 && errno != EINVAL)
		conform_fail("MADV_HUGEPAGE: %s", strerror(errno));
	conform_fill(huge, 8 * MIB, 3);
	memcpy(code, instructions, sizeof instructions);
	__builtin___clear_cache((char *)code, (char *)code + sizeof instructions);
	BUILD(mprotect(code, PAGE, PROT_READ | PROT_EXEC));
	conform_ready();
	conform_wait();
	conform_verify("dense memory", dense, 8 * MIB, 1);
	for (size_t at = 0; at < SPARSE; at += PAGE) {
		if (at % SPARSE_STEP == 0)
			conform_verify("sparse memory", sparse + at, PAGE, (unsigned)at);
		else
			EXPECT("byte never written", sparse[at], 0);
	}
	conform_verify("read-only memory", fixed, MIB, 2);
	EXPECT("read-only memory refuses writing", conform_faults(fixed, true), 1);
	for (size_t at = 0; at < 16 * MIB; at += PAGE)
		EXPECT("byte never touched", untouched[at], 0);
	for (size_t at = 0; at < MIB; at++)
		if (same[at] != 0x5a)
			conform_fail("memory of one value differs at byte %zu", at);
	conform_verify("huge pages", huge, 8 * MIB, 3);
	EXPECT("result of code made at run time", ((int (*)(void))code)(), 42);
	EXPECT("executable memory refuses writing", conform_faults(code, true), 1);
	conform_pass();
}
