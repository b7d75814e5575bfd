/*
 * Tiles of AMX, which a process has to ask for (ARCH_REQ_XCOMP_PERM): in use by a thread that computes, given
 * up again, and not used yet.
 */
#include "conform.h"
#include <pthread.h>
#include <sys/syscall.h>

#ifdef __x86_64__
enum { REQUEST_PART = 0x1023, TILE_DATA = 18, ROWS = 16, COLUMNS = 64, TILE = ROWS * COLUMNS };

static unsigned char content[TILE];
static _Atomic int ready;

static void configure(void)
{
	struct {
		uint8_t palette, start_row, reserved[14];
		uint16_t columns[16];
		uint8_t rows[16];
	} configuration = {.palette = 1, .columns = {COLUMNS}, .rows = {ROWS}};
	/* ldtilecfg [rax]; assemblers of some age have no name for these. */
	__asm__ volatile(".byte 0xc4,0xe2,0x78,0x49,0x00" : : "a"(&configuration), "m"(configuration));
}

static void load(void)
{
	configure();
	/* tileloadd tmm0, [rax+rcx] */
	__asm__ volatile(".byte 0xc4,0xe2,0x7b,0x4b,0x04,0x08" : : "a"(content), "c"((long)COLUMNS) : "memory");
}

static void give_up(void)
{
	/* tilerelease */
	__asm__ volatile(".byte 0xc4,0xe2,0x78,0x49,0xc0");
}

static void verify(const char *what)
{
	unsigned char found[TILE] = {0};
	/* tilestored [rax+rcx], tmm0 */
	__asm__ volatile(".byte 0xc4,0xe2,0x7a,0x4b,0x04,0x08" : : "a"(found), "c"((long)COLUMNS) : "memory");
	give_up();
	EXPECT(what, memcmp(found, content, TILE), 0);
}

static void *compute(void *unused)
{
	(void)unused;
	load();
	ready++;
	while (!conform_gone())
		for (volatile int turn = 0; turn < 100000; turn++)
			;
	verify("tile of a thread that computes");
	return NULL;
}

static void *given_up(void *unused)
{
	(void)unused;
	load();
	give_up();
	ready++;
	conform_wait();
	load();
	verify("tile that was given up");
	return NULL;
}

static void *not_yet(void *unused)
{
	(void)unused;
	ready++;
	conform_wait();
	load();
	verify("first tile");
	return NULL;
}
#endif

int main(int argc, char **argv)
{
	conform_start(argc, argv);
#ifdef __x86_64__
	void *(*const bodies[])(void *) = {compute, given_up, not_yet};
	enum { THREADS = sizeof bodies / sizeof *bodies };
	pthread_t threads[THREADS];
	if (syscall(SYS_arch_prctl, REQUEST_PART, TILE_DATA) != 0)
		conform_skip("no tiles here");
	conform_fill(content, TILE, 1);
	for (int i = 0; i < THREADS; i++)
		BUILD0(pthread_create(&threads[i], NULL, bodies[i], NULL));
	while (ready < THREADS)
		conform_sleep_ms(1);
	conform_ready();
	conform_wait();
	for (int i = 0; i < THREADS; i++)
		BUILD0(pthread_join(threads[i], NULL));
	conform_pass();
#else
	conform_skip("a processor without tiles");
#endif
}
