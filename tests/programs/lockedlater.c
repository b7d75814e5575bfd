/*
 * mlockall(MCL_FUTURE): what is mapped after the restart is locked, in one process at once, in another one when it is touched.
 * And memory that is locked when it is touched (mlock2).
 */
#include "conform.h"
#include <sys/syscall.h>

#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif

enum { PAGES = 16 };

static int there_in(char *memory)
{
	unsigned char pages[PAGES];
	int count = 0;
	BUILD(mincore(memory, PAGES * CONFORM_PAGE, pages));
	for (int i = 0; i < PAGES; i++)
		count += pages[i] & 1;
	return count;
}

static int there(void)
{
	return there_in(conform_map(PAGES * CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1));
}

static long locked(void)
{
	char status[8192], *line;
	conform_read_file("/proc/self/status", status, sizeof status);
	line = strstr(status, "VmLck:");
	return line == NULL ? -1 : atol(line + 6);
}

static void on_touch(void *unused)
{
	(void)unused;
	BUILD(mlockall(MCL_FUTURE | MCL_ONFAULT));
	conform_mark("touch");
	conform_wait();
	long before = locked();
	EXPECT("pages that are there", there(), 0);
	EXPECT("memory that is locked, KiB", locked() - before, PAGES * CONFORM_PAGE / 1024);
}

static void area(void *unused)
{
	(void)unused;
	char *memory = conform_map(PAGES * CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	/* MLOCK_ONFAULT; before Linux 4.4 there is none. */
	bool has = syscall(SYS_mlock2, memory, PAGES * CONFORM_PAGE, 1) == 0;
	memory[0] = 1;
	conform_mark("area");
	conform_wait();
	EXPECT("pages of an area that are there", there_in(memory), 1);
	EXPECT("area that is locked, KiB", locked(), has ? PAGES * CONFORM_PAGE / 1024 : 0);
}

static void never(void *unused)
{
	(void)unused;
	conform_mark("never");
	conform_wait();
	EXPECT("pages of memory that is not locked", there(), 0);
	EXPECT("memory that is locked, KiB", locked(), 0);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t second = conform_spawn(on_touch, NULL), third = conform_spawn(never, NULL);
	pid_t fourth = conform_spawn(area, NULL);
	BUILD(mlockall(MCL_FUTURE));
	conform_await("area");
	conform_await("touch");
	conform_await("never");
	conform_ready();
	conform_wait();
	long before = locked();
	EXPECT("pages that are there", there(), PAGES);
	EXPECT("memory that is locked, KiB", locked() - before, PAGES * CONFORM_PAGE / 1024);
	conform_join(second);
	conform_join(third);
	conform_join(fourth);
	conform_pass();
}
