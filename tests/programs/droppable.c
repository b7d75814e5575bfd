/*
 * Memory that the kernel may drop (MAP_DROPPABLE): it stays so, and a restart, which the process tells by its own starting time,
 * has dropped it.
 */
#include "conform.h"

#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif
enum { PAGE = CONFORM_PAGE, SIZE = 8 * PAGE };

static bool is_droppable(const char *memory)
{
	char line[1024];
	unsigned long start = 0, end;
	bool within = false, found = false;
	FILE *smaps = fopen("/proc/self/smaps", "r");
	if (!smaps)
		conform_fail("/proc/self/smaps: %s", strerror(errno));
	while (fgets(line, sizeof line, smaps)) {
		if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
			within = start <= (unsigned long)memory && (unsigned long)memory < end;
		else if (within && strncmp(line, "VmFlags:", 8) == 0)
			found = strstr(line, " dp") != NULL;
	}
	fclose(smaps);
	return found;
}

static unsigned long long started(void)
{
	char text[1024];
	unsigned long long ticks = 0;
	conform_read_file("/proc/self/stat", text, sizeof text);
	char *at = strrchr(text, ')');
	for (int field = 3; at && field <= 22; field++)
		at = strchr(at + 1, ' ');
	if (!at || sscanf(at, "%llu", &ticks) != 1)
		conform_fail("/proc/self/stat: %s", text);
	return ticks;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_DROPPABLE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		conform_skip("no MAP_DROPPABLE");
	unsigned long long before = started();
	conform_fill(memory, SIZE, 3);
	conform_ready();
	conform_wait();
	EXPECT("droppable", is_droppable(memory), 1);
	if (started() != before)
		for (int at = 0; at < SIZE; at++)
			EXPECT("byte of what was dropped", memory[at], 0);
	memory[0] = 1;
	EXPECT("byte that was written", memory[0], 1);
	conform_pass();
}
