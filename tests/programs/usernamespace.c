/*
 * A user namespace of a process's own, in which it is root: its numbers and maps, its rights inside, none outside; a child and
 * threads in the same one.
 */
#include "namespaces.h"
#include <linux/capability.h>
#include <pthread.h>
#include <sys/syscall.h>

static char map_before[256];

static uint64_t effective(void)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];
	BUILD(syscall(SYS_capget, &head, data));
	return data[0].effective | (uint64_t)data[1].effective << 32;
}

static void check(const char *who)
{
	char map[256], policy[16];
	EXPECT(who, getuid(), 0);
	EXPECT(who, geteuid(), 0);
	EXPECT(who, getegid(), 0);
	conform_read_file("/proc/self/uid_map", map, sizeof map);
	EXPECT_TEXT("map of users", map, map_before);
	conform_read_file("/proc/self/setgroups", policy, sizeof policy);
	EXPECT_TEXT("setgroups", policy, "deny\n");
	EXPECT("right to administrate, inside", effective() >> CAP_SYS_ADMIN & 1, 1);
	EXPECT("right that was given up", effective() >> CAP_NET_RAW & 1, 0);
}

static void drop_one(void)
{
	struct __user_cap_header_struct head = { _LINUX_CAPABILITY_VERSION_3, 0 };
	struct __user_cap_data_struct data[2];
	BUILD(syscall(SYS_capget, &head, data));
	data[0].effective &= ~(1U << CAP_NET_RAW);
	data[0].permitted &= ~(1U << CAP_NET_RAW);
	BUILD(syscall(SYS_capset, &head, data));
}

static void *thread(void *unused)
{
	pid_t number = (pid_t)syscall(SYS_gettid);
	conform_wait();
	EXPECT("number of a thread", syscall(SYS_gettid), number);
	check("thread's user");
	return unused;
}

static void child(void *unused)
{
	(void)unused;
	char own[64], now[64];
	namespace_name("user", own, sizeof own);
	conform_mark("born");
	conform_wait();
	check("child's user");
	/* Which one it is differs after a restart, but not from the parent's. */
	namespace_name("user", now, sizeof now);
	FILE *file = fopen(conform_path("name"), "w");
	if (file == NULL || fputs(now, file) < 0 || fclose(file) != 0)
		conform_fail("the name cannot be written");
	conform_mark("told");
}

int main(int argc, char **argv)
{
	enum { THREADS = 5 };
	pthread_t threads[THREADS];
	char name[64], told[64];
	conform_start(argc, argv);
	become_inside(0, 0);
	drop_one();
	conform_read_file("/proc/self/uid_map", map_before, sizeof map_before);
	pid_t process = conform_spawn(child, NULL);
	for (int i = 0; i < THREADS; i++)
		BUILD0(pthread_create(&threads[i], NULL, thread, NULL));
	conform_await("born");
	conform_ready();
	conform_wait();
	check("user");
	conform_await("told");
	namespace_name("user", name, sizeof name);
	conform_read_file(conform_path("name"), told, sizeof told);
	EXPECT_TEXT("user namespace of the child", told, name);
	EXPECT_ERROR("right outside", sethostname("x", 1), EPERM);
	for (int i = 0; i < THREADS; i++)
		BUILD0(pthread_join(threads[i], NULL));
	conform_join(process);
	conform_pass();
}
