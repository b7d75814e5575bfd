/*
 * Limits that are reached: of addresses, of data and of processes, in a process each, and of locked memory in one that locks all
 * that it maps.
 */
#include "conform.h"
#include <sys/resource.h>

/* A field of /proc/self/status, KiB. */
static rlim_t used(const char *field)
{
	static char status[8192];
	conform_read_file("/proc/self/status", status, sizeof status);
	char *line = strstr(status, field);
	return line == NULL ? 0 : (rlim_t)atoll(line + strlen(field) + 1) * 1024;
}

static void limit(int resource, rlim_t soft)
{
	struct rlimit limit;
	BUILD(getrlimit(resource, &limit));
	limit.rlim_cur = soft;
	BUILD(setrlimit(resource, &limit));
}

static void check_limit(int resource, rlim_t soft)
{
	struct rlimit limit;
	BUILD(getrlimit(resource, &limit));
	EXPECT("soft limit", limit.rlim_cur, soft);
}

static void check_full(int error)
{
	void *more = mmap(NULL, CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	EXPECT("more memory", more == MAP_FAILED, 1);
	EXPECT("why there is none", errno, error);
}

static void addresses(void *unused)
{
	(void)unused;
	rlim_t most = used("VmSize");
	limit(RLIMIT_AS, most);
	check_full(ENOMEM);
	conform_mark("addresses");
	conform_wait();
	check_limit(RLIMIT_AS, most);
	check_full(ENOMEM);
}

static void data(void *unused)
{
	(void)unused;
	rlim_t most = used("VmData");
	limit(RLIMIT_DATA, most);
	check_full(ENOMEM);
	conform_mark("data");
	conform_wait();
	check_limit(RLIMIT_DATA, most);
	check_full(ENOMEM);
}

static void locked(void *unused)
{
	(void)unused;
	limit(RLIMIT_MEMLOCK, CONFORM_PAGE);
	BUILD(mlockall(MCL_FUTURE));
	conform_map(CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	if (geteuid() != 0)
		check_full(EAGAIN);
	conform_mark("locked");
	conform_wait();
	check_limit(RLIMIT_MEMLOCK, CONFORM_PAGE);
	if (geteuid() != 0)
		check_full(EAGAIN);
}

static void processes(void *unused)
{
	(void)unused;
	limit(RLIMIT_NPROC, 1);
	conform_mark("processes");
	conform_wait();
	check_limit(RLIMIT_NPROC, 1);
	if (geteuid() != 0)
		EXPECT_ERROR("one more process", fork(), EAGAIN);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pid_t children[] = {conform_spawn(addresses, NULL), conform_spawn(data, NULL),
			    conform_spawn(locked, NULL), conform_spawn(processes, NULL)};
	conform_await("addresses");
	conform_await("data");
	conform_await("locked");
	conform_await("processes");
	conform_ready();
	conform_wait();
	for (int i = 0; i < 4; i++)
		conform_join(children[i]);
	conform_pass();
}
