/*
 * A hard limit of addresses that is reached: nothing can be mapped for a moment.
 *
 * conform: user
 */
#include "../conform.h"
#include <sys/resource.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	conform_expect_refusal(getpid(), -1);
	static char status[8192];
	conform_read_file("/proc/self/status", status, sizeof status);
	char *line = strstr(status, "VmSize:");
	BUILD(line == NULL ? -1 : 0);
	rlim_t most = (rlim_t)atoll(line + 7) * 1024 + 16 * CONFORM_PAGE;
	struct rlimit limit = {.rlim_cur = most, .rlim_max = most};
	BUILD(setrlimit(RLIMIT_AS, &limit));
	conform_ready();
	conform_wait();
	conform_pass();
}
