/*
 * What a thread may do, and who hears of its parent's end: capabilities that outlive a change of user, ambient ones and those
 * that may not be had again, secure bits, no_new_privs, the parent's death signal, a subreaper.
 */
#include "conform.h"
#include <linux/capability.h>
#include <linux/securebits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static atomic_bool checking;
static atomic_int built;

/* The lines of /proc/thread-self/status about capabilities. */
static void capabilities(char *into, size_t size)
{
	static _Thread_local char status[8192];
	conform_read_file("/proc/thread-self/status", status, sizeof status);
	const char *first = strstr(status, "CapInh:"), *last = strstr(status, "NoNewPrivs:");
	snprintf(into, size, "%.*s", (int)(last - first), first);
}

static void *restricted(void *argument)
{
	(void)argument;
	char before[512], after[512];
	BUILD(prctl(PR_SET_KEEPCAPS, 1));
	/* The privileged of these are as they were where there is no privilege. */
	prctl(PR_CAPBSET_DROP, CAP_SYS_BOOT);
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct sets[2] = {0};
	BUILD(syscall(SYS_capget, &header, sets));
	sets[0].inheritable |= sets[0].permitted & 1 << CAP_KILL;
	syscall(SYS_capset, &header, sets);
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_KILL, 0, 0);
	long bits = prctl(PR_GET_SECUREBITS);
	prctl(PR_SET_SECUREBITS, bits | SECBIT_NOROOT | SECBIT_NO_SETUID_FIXUP_LOCKED);
	BUILD(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
	bits = prctl(PR_GET_SECUREBITS);
	capabilities(before, sizeof before);
	built++;
	while (!checking)
		usleep(2000);
	capabilities(after, sizeof after);
	EXPECT_TEXT("capabilities", after, before);
	EXPECT("PR_GET_KEEPCAPS", prctl(PR_GET_KEEPCAPS), 1);
	EXPECT("PR_GET_SECUREBITS", prctl(PR_GET_SECUREBITS), bits);
	EXPECT("PR_GET_NO_NEW_PRIVS", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
	return NULL;
}

static void child(void *unused)
{
	(void)unused;
	BUILD(prctl(PR_SET_PDEATHSIG, SIGUSR2));
	conform_mark("child");
	conform_wait();
	int signal = 0;
	BUILD(prctl(PR_GET_PDEATHSIG, &signal));
	EXPECT("PR_GET_PDEATHSIG", signal, SIGUSR2);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(prctl(PR_SET_CHILD_SUBREAPER, 1));
	pid_t pid = conform_spawn(child, NULL);
	conform_await("child");
	pthread_t thread;
	BUILD0(pthread_create(&thread, NULL, restricted, NULL));
	while (!built)
		usleep(1000);
	char before[512], after[512];
	capabilities(before, sizeof before);
	conform_ready();
	conform_wait();
	capabilities(after, sizeof after);
	EXPECT_TEXT("capabilities of the first thread", after, before);
	EXPECT("PR_GET_NO_NEW_PRIVS of the first thread", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 0);
	EXPECT("PR_GET_KEEPCAPS of the first thread", prctl(PR_GET_KEEPCAPS), 0);
	int reaper = 0;
	BUILD(prctl(PR_GET_CHILD_SUBREAPER, &reaper));
	EXPECT("PR_GET_CHILD_SUBREAPER", reaper, 1);
	checking = true;
	BUILD0(pthread_join(thread, NULL));
	conform_join(pid);
	conform_pass();
}
