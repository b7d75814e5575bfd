/*
 * Anonymous memory that the program has given names (PR_SET_VMA_ANON_NAME): private memory, shared memory, and parts of both.
 */
#include "conform.h"
#include <sys/prctl.h>

enum { SIZE = 4 * CONFORM_PAGE };

/* What /proc/self/maps calls the memory at an address. */
static void name_of(const void *address, char *name)
{
	FILE *file = fopen("/proc/self/maps", "r");
	char line[512];
	unsigned long start, end;
	strcpy(name, "");
	while (file && fgets(line, sizeof line, file)) {
		int at = 0;
		if (sscanf(line, "%lx-%lx %*s %*s %*s %*s %n", &start, &end, &at) < 2 ||
		    start > (unsigned long)address || (unsigned long)address >= end)
			continue;
		line[strcspn(line, "\n")] = 0;
		snprintf(name, 128, "%.127s", at ? line + at : "");
	}
	if (file)
		fclose(file);
}

static void parent_writes(void *shared)
{
	conform_mark("child");
	conform_wait();
	while (!((volatile char *)shared)[1])
		usleep(1000);
	((volatile char *)shared)[2] = 3;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char *private = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	char *shared = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
	conform_fill(private, SIZE, 3);
	if (prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, private, SIZE, "all of it"))
		conform_skip("this kernel has no names for memory");
	BUILD(prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, private + CONFORM_PAGE, CONFORM_PAGE, "a: part (x)"));
	BUILD(prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, shared, SIZE, "ring"));
	pid_t pid = conform_spawn(parent_writes, shared);
	conform_await("child");
	conform_ready();
	conform_wait();
	char name[128];
	name_of(private, name);
	EXPECT_TEXT("name", name, "[anon:all of it]");
	name_of(private + CONFORM_PAGE, name);
	EXPECT_TEXT("name of a part", name, "[anon:a: part (x)]");
	name_of(shared, name);
	EXPECT_TEXT("name of shared memory", name, "[anon_shmem:ring]");
	conform_verify("memory", private, SIZE, 3);
	shared[1] = 1;
	conform_join(pid);
	EXPECT("what the child has written", shared[2], 3);
	conform_pass();
}
