/* Resource limits, umask, working directory, name, oom score, dumpable, no_new_privs, death signal. */
#include "conform.h"
#include <sys/prctl.h>
#include <sys/resource.h>

static const int resources[] = { RLIMIT_CORE,   RLIMIT_CPU,    RLIMIT_FSIZE, RLIMIT_DATA,
				 RLIMIT_NOFILE, RLIMIT_STACK,  RLIMIT_AS,    RLIMIT_MEMLOCK,
				 RLIMIT_NPROC,  RLIMIT_RTPRIO, RLIMIT_NICE,  RLIMIT_SIGPENDING };
enum { RESOURCES = sizeof resources / sizeof *resources };

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct rlimit limits[RESOURCES];
	for (int i = 0; i < RESOURCES; i++) {
		BUILD(getrlimit(resources[i], &limits[i]));
		/* Lowering the soft limit needs no privilege; each gets a value of its own. */
		rlim_t lowered = limits[i].rlim_cur == RLIM_INFINITY ? (1ull << 40) + (rlim_t)i :
								       limits[i].rlim_cur;
		if (limits[i].rlim_max != RLIM_INFINITY && lowered > limits[i].rlim_max)
			lowered = limits[i].rlim_max;
		if (resources[i] == RLIMIT_NOFILE && lowered > 200)
			lowered = 200;
		limits[i].rlim_cur = lowered;
		BUILD(setrlimit(resources[i], &limits[i]));
	}
	const char *inside = conform_path("inside");
	char cwd[4096], found[4096], name[16];
	BUILD(mkdir(inside, 0755));
	BUILD(chdir(inside));
	BUILD(getcwd(cwd, sizeof cwd) ? 0 : -1);
	umask(027);
	BUILD(prctl(PR_SET_NAME, "conform-name"));
	BUILD(prctl(PR_SET_PDEATHSIG, SIGUSR2));
	BUILD(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	conform_ready();
	conform_wait();
	for (int i = 0; i < RESOURCES; i++) {
		struct rlimit limit;
		BUILD(getrlimit(resources[i], &limit));
		EXPECT("soft limit", limit.rlim_cur, limits[i].rlim_cur);
		EXPECT("hard limit", limit.rlim_max, limits[i].rlim_max);
	}
	EXPECT("umask", umask(0), 027);
	BUILD(getcwd(found, sizeof found) ? 0 : -1);
	EXPECT_TEXT("working directory", found, cwd);
	BUILD(prctl(PR_GET_NAME, name));
	EXPECT_TEXT("name", name, "conform-name");
	int death_signal = 0;
	BUILD(prctl(PR_GET_PDEATHSIG, &death_signal));
	EXPECT("parent death signal", death_signal, SIGUSR2);
	EXPECT("no_new_privs", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
	EXPECT("dumpable", prctl(PR_GET_DUMPABLE), 1);
	conform_pass();
}
