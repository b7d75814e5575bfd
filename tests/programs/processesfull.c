/*
 * As many processes as the user may have, for good: no copy can be made of this one, and the job stands until its image is
 * written.
 */
#include "conform.h"
#include <sys/resource.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct rlimit limit = {.rlim_cur = 1, .rlim_max = 1};
	char *memory = conform_map(64 * CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	conform_fill(memory, 64 * CONFORM_PAGE, 5);
	BUILD(setrlimit(RLIMIT_NPROC, &limit));
	conform_ready();
	conform_wait();
	BUILD(getrlimit(RLIMIT_NPROC, &limit));
	EXPECT("soft limit", limit.rlim_cur, 1);
	EXPECT("hard limit", limit.rlim_max, 1);
	conform_verify("memory", memory, 64 * CONFORM_PAGE, 5);
	if (geteuid() != 0)
		EXPECT_ERROR("one more process", fork(), EAGAIN);
	conform_pass();
}
