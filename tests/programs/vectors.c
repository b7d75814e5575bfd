/*
 * Vector and predicate registers of threads that are stopped outside of system calls: whatever is done to a process while
 * it stands still, they find all of them as they were.
 */
#include "conform.h"
#include <pthread.h>
#include <sys/auxv.h>

#if defined __aarch64__
#ifndef HWCAP_SVE
#define HWCAP_SVE (1 << 22)
#endif

static bool usable(void)
{
	return getauxval(AT_HWCAP) & HWCAP_SVE;
}

/* Fills a vector and a predicate, runs for a while without any call, and tells whether both are as they were. */
static bool survives(uint64_t seed)
{
	uint64_t wrong;
	__asm__ volatile(".arch_extension sve\n"
			 "	index z31.d, %[seed], #1\n"
			 "	ptrue p15.d\n"
			 "	mov x9, #0x100000\n"
			 "1:	subs x9, x9, #1\n"
			 "	b.ne 1b\n"
			 "	ptrue p7.d\n"
			 "	eor p13.b, p7/z, p7.b, p15.b\n"
			 "	index z30.d, %[seed], #1\n"
			 "	cmpne p12.d, p7/z, z30.d, z31.d\n"
			 "	orr p12.b, p7/z, p12.b, p13.b\n"
			 "	cntp %[wrong], p7, p12.d\n"
			 : [wrong] "=r"(wrong)
			 : [seed] "r"(seed)
			 : "x9", "cc", "v30", "v31");
	return wrong == 0;
}
#elif defined __x86_64__
static bool usable(void)
{
	return __builtin_cpu_supports("avx2");
}

static bool survives(uint64_t seed)
{
	uint64_t wrong;
	__asm__ volatile("	vmovq %[seed], %%xmm15\n"
			 "	vpbroadcastq %%xmm15, %%ymm15\n"
			 "	mov $0x100000, %%ecx\n"
			 "1:	dec %%ecx\n"
			 "	jnz 1b\n"
			 "	vmovq %[seed], %%xmm14\n"
			 "	vpbroadcastq %%xmm14, %%ymm14\n"
			 "	vpcmpeqq %%ymm15, %%ymm14, %%ymm14\n"
			 "	vpmovmskb %%ymm14, %k[wrong]\n"
			 "	not %k[wrong]\n"
			 "	vzeroupper\n"
			 : [wrong] "=r"(wrong)
			 : [seed] "r"(seed)
			 : "ecx", "cc", "xmm14", "xmm15");
	return (uint32_t)wrong == 0;
}
#else
static bool usable(void)
{
	return false;
}

static bool survives(uint64_t seed)
{
	return seed == 0;
}
#endif

static volatile int stop;

static void *worker(void *argument)
{
	for (uint64_t seed = (uint64_t)(uintptr_t)argument; !stop; seed += 3)
		EXPECT("vectors as they were", survives(seed), true);
	return NULL;
}

int main(int argc, char **argv)
{
	enum { THREADS = 2 };
	pthread_t threads[THREADS];
	conform_start(argc, argv);
	if (!usable())
		conform_skip("no vectors that the program knows");
	for (long i = 0; i < THREADS; i++)
		BUILD0(pthread_create(&threads[i], NULL, worker, (void *)(i + 1)));
	conform_ready();
	conform_wait();
	stop = 1;
	for (int i = 0; i < THREADS; i++)
		BUILD0(pthread_join(threads[i], NULL));
	conform_pass();
}
