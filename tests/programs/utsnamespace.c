/*
 * A UTS namespace of a process's own: its names, shared with a child and with threads; the parent has others.
 *
 * conform: root
 */
#include "namespaces.h"
#include <pthread.h>
#include <sys/utsname.h>

static void check_names(const char *who, const char *host, const char *domain)
{
	struct utsname names;
	BUILD(uname(&names));
	EXPECT_TEXT(who, names.nodename, host);
	EXPECT_TEXT(who, names.domainname, domain);
}

static void *thread(void *unused)
{
	conform_wait();
	conform_await("changed");
	check_names("thread's names", "changed", "own.domain");
	return unused;
}

static void grandchild(void *unused)
{
	(void)unused;
	conform_mark("grandchild");
	conform_wait();
	check_names("grandchild's names", "own-host", "own.domain");
	BUILD(sethostname("changed", 7));
	conform_mark("changed");
}

static void child(void *unused)
{
	(void)unused;
	pthread_t other;
	BUILD(unshare(CLONE_NEWUTS));
	BUILD(sethostname("own-host", 8));
	BUILD(setdomainname("own.domain", 10));
	pid_t below = conform_spawn(grandchild, NULL);
	BUILD0(pthread_create(&other, NULL, thread, NULL));
	conform_await("grandchild");
	conform_mark("child");
	conform_wait();
	conform_await("changed");
	check_names("child's names", "changed", "own.domain");
	BUILD0(pthread_join(other, NULL));
	conform_join(below);
}

int main(int argc, char **argv)
{
	struct utsname before;
	conform_start(argc, argv);
	BUILD(uname(&before));
	pid_t process = conform_spawn(child, NULL);
	conform_await("child");
	conform_ready();
	conform_wait();
	check_names("parent's names", before.nodename, before.domainname);
	conform_join(process);
	conform_pass();
}
