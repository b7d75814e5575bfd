/*
 * A process that became another user: groups, ambient and bounding capabilities, PR_SET_PDEATHSIG, limits that it could not
 * raise by itself, and dumpable that it set again.
 * conform: root
 */
#include "conform.h"
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static const gid_t groups[] = { 101, 1234, 54321 };
enum { USER = 1234, GROUPS = sizeof groups / sizeof *groups, KEPT = CAP_NET_BIND_SERVICE, DROPPED = CAP_SYS_MODULE };

static void capset_of(uint32_t permitted, uint32_t inheritable)
{
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2] = { { permitted, permitted, inheritable }, { 0, 0, 0 } };
	BUILD(syscall(SYS_capset, &header, data));
}

static void become_user(void)
{
	struct rlimit files = { 300, 5000 };
	BUILD(prctl(PR_CAPBSET_DROP, DROPPED));
	BUILD(setrlimit(RLIMIT_NOFILE, &files));
	BUILD(prctl(PR_SET_KEEPCAPS, 1));
	BUILD(setgroups(GROUPS, groups));
	BUILD(setresgid(USER, USER, USER));
	BUILD(setresuid(USER, USER, USER));
	capset_of(1u << KEPT, 1u << KEPT);
	BUILD(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, KEPT, 0, 0));
	BUILD(prctl(PR_SET_PDEATHSIG, SIGUSR2));
	BUILD(prctl(PR_SET_DUMPABLE, 1));
}

static void body(void *unused)
{
	(void)unused;
	become_user();
	conform_mark("changed");
	while (!conform_gone())
		conform_sleep_ms(5);
	struct __user_cap_header_struct header = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];
	BUILD(syscall(SYS_capget, &header, data));
	EXPECT("user", getuid(), USER);
	gid_t found[GROUPS + 1];
	EXPECT("groups", getgroups(GROUPS + 1, found), GROUPS);
	for (int i = 0; i < GROUPS; i++)
		EXPECT("group", found[i], groups[i]);
	EXPECT("permitted capabilities", data[0].permitted, 1u << KEPT);
	EXPECT("effective capabilities", data[0].effective, 1u << KEPT);
	EXPECT("inheritable capabilities", data[0].inheritable, 1u << KEPT);
	EXPECT("ambient capability", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, KEPT, 0, 0), 1);
	EXPECT("another ambient capability", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0), 0);
	EXPECT("bounding set", prctl(PR_CAPBSET_READ, DROPPED), 0);
	EXPECT("bounding set", prctl(PR_CAPBSET_READ, CAP_CHOWN), 1);
	EXPECT("dumpable", prctl(PR_GET_DUMPABLE), 1);
	int signal = 0;
	BUILD(prctl(PR_GET_PDEATHSIG, &signal));
	EXPECT("signal at the parent's end", signal, SIGUSR2);
	struct rlimit files;
	BUILD(getrlimit(RLIMIT_NOFILE, &files));
	EXPECT("soft limit", files.rlim_cur, 300);
	EXPECT("hard limit", files.rlim_max, 5000);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	/* The other user is to see the runner's word. */
	BUILD(chmod(argv[1], 0777));
	pid_t child = conform_spawn(body, NULL);
	conform_await("changed");
	conform_ready();
	conform_wait();
	conform_join(child);
	conform_pass();
}
