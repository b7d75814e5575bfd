/*
 * Segments of a process's own (modify_ldt(2)): data that a thread reaches through a segment register, one of 16 bits, one
 * that can only be read, one that is not present; a child has the same ones. On processors of x86 alone.
 */
#include "conform.h"
#if defined(__x86_64__) || defined(__i386__)
#include <asm/ldt.h>
#include <pthread.h>
#include <sys/syscall.h>

enum { ROOM = 512, NUMBER = 3 };
static unsigned char before[ROOM];
static long length;
static volatile int loaded;

static long table(unsigned char *bytes)
{
	return BUILD(syscall(SYS_modify_ldt, 0, bytes, ROOM));
}

/* What a segment has at offset 12. */
static unsigned through(int number)
{
	unsigned value;
	unsigned short selector = (unsigned short)(number * 8 + 7);
	__asm__ volatile("mov %1, %%fs\n mov %%fs:12, %0" : "=r"(value) : "r"(selector));
	return value;
}

static void *thread(void *unused)
{
	unsigned value;
	unsigned short selector = NUMBER * 8 + 7, now;
	/* Of 32 bits, the thread pointer is in gs, of 64 in fs. */
#ifdef __x86_64__
	__asm__ volatile("mov %0, %%gs" ::"r"(selector));
	loaded = 1;
	conform_wait();
	__asm__ volatile("mov %%gs, %0" : "=r"(now));
	__asm__ volatile("mov %%gs:12, %0" : "=r"(value));
#else
	__asm__ volatile("mov %0, %%fs" ::"r"(selector));
	loaded = 1;
	conform_wait();
	__asm__ volatile("mov %%fs, %0" : "=r"(now));
	__asm__ volatile("mov %%fs:12, %0" : "=r"(value));
#endif
	EXPECT("segment register of a thread", now, selector);
	EXPECT("what it reaches", value, 0xabcd);
	return unused;
}

static void check(void *unused)
{
	(void)unused;
	unsigned char now[ROOM];
	EXPECT("length of the table", table(now), length);
	EXPECT("table", memcmp(now, before, (size_t)length), 0);
}

static void child(void *unused)
{
	conform_wait();
	check(unused);
}

int main(int argc, char **argv)
{
	pthread_t other;
	conform_start(argc, argv);
	unsigned *memory = mmap(NULL, CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	BUILD((long)memory);
	memory[3] = 0xabcd;
	struct user_desc all[] = {
		{ .entry_number = NUMBER, .base_addr = (unsigned)(uintptr_t)memory, .limit = CONFORM_PAGE - 1,
		  .seg_32bit = 1, .useable = 1 },
		{ .entry_number = 17, .base_addr = 0x12345678, .limit = 0xfffff, .seg_32bit = 1, .limit_in_pages = 1,
		  .read_exec_only = 1 },
		{ .entry_number = 18, .base_addr = 0xfedcba98, .limit = 77, .contents = 1, .seg_32bit = 1,
		  .seg_not_present = 1 },
	};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (syscall(SYS_modify_ldt, 0x11, &all[i], sizeof all[i]) != 0)
			conform_skip("this kernel has no modify_ldt(2)");
	length = table(before);
	BUILD0(pthread_create(&other, NULL, thread, NULL));
	while (!loaded)
		conform_sleep_ms(1);
	pid_t process = conform_spawn(child, NULL);
	conform_ready();
	conform_wait();
	check(NULL);
	BUILD0(pthread_join(other, NULL));
#ifdef __i386__
	EXPECT("through a segment", through(NUMBER), 0xabcd);
#else
	(void)through;
#endif
	conform_join(process);
	conform_pass();
}
#else
int main(int argc, char **argv)
{
	conform_start(argc, argv);
	conform_skip("no processor of x86");
}
#endif
