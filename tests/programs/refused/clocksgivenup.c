/*
 * A time namespace for a process's children that none is in yet, made by a process that has no rights any more: a copy of
 * its memory would be the first one in it, after which nobody could set its clocks.
 */
#include "../clocks.h"
#include <linux/capability.h>
#include <sys/syscall.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	become_inside(0, 0);
	new_clocks(AHEAD_MONOTONIC * SECOND, 0);
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct none[2] = { 0 };
	BUILD(syscall(SYS_capset, &header, none));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	expect_ahead("clocks", AHEAD_MONOTONIC * SECOND, 0);
	conform_pass();
}
