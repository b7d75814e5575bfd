/* A child that its parent traces, as a debugger would: ptrace has room for one tracer. */
#include "conform.h"
#include <sys/ptrace.h>

static void traced(void *unused)
{
	(void)unused;
	conform_mark("born");
	conform_wait();
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t child = conform_spawn(traced, NULL);
	conform_await("born");
	if (ptrace(PTRACE_SEIZE, child, NULL, NULL) != 0)
		conform_skip("ptrace is forbidden here");
	conform_expect_refusal(child, -1);
	conform_ready();
	conform_wait();
	conform_join(child);
	conform_pass();
}
