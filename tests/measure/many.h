/*
 * What programs need that are measured with many processes, threads or descriptors.
 */
#ifndef MANY_H
#define MANY_H

#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "results.h"

/* As many descriptors as are asked for, where a privilege allows it; else what is allowed. */
static void raise_limit(rlim_t wanted)
{
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) != 0)
		die("getrlimit");
	const struct rlimit more = { wanted, wanted };
	files.rlim_cur = files.rlim_max;
	if ((wanted <= files.rlim_max || setrlimit(RLIMIT_NOFILE, &more) != 0) && setrlimit(RLIMIT_NOFILE, &files) != 0)
		die("setrlimit");
}

static void *idle(void *nothing)
{
	for (;;)
		pause();
	return nothing;
}

/* Children that wait, and end with this process. */
static void make_processes(long count)
{
	for (long made = 0; made < count; made++) {
		pid_t child = fork();
		if (child < 0)
			die("fork");
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			idle(NULL);
		}
	}
}

#endif
