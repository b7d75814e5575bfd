/* Registrations of membarrier(2): each kind that the program has asked for goes on to be one that it may use. */
#include "conform.h"
#include <linux/membarrier.h>
#include <sys/syscall.h>

static const struct {
	int registers, command;
} kinds[] = {
	{ MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, MEMBARRIER_CMD_GLOBAL_EXPEDITED },
	{ MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, MEMBARRIER_CMD_PRIVATE_EXPEDITED },
	{ MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE },
};
enum { COUNT = sizeof kinds / sizeof *kinds };

static long membarrier(int command)
{
	return syscall(SYS_membarrier, command, 0, 0);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	long offered = membarrier(MEMBARRIER_CMD_QUERY);
	if (offered < 0)
		conform_skip("this kernel has no membarrier");
	for (int i = 0; i < COUNT; i++)
		if (offered & kinds[i].registers)
			BUILD(membarrier(kinds[i].registers));
	conform_ready();
	conform_wait();
	for (int i = 0; i < COUNT; i++)
		if (offered & kinds[i].registers)
			EXPECT("membarrier", membarrier(kinds[i].command), 0);
	conform_pass();
}
