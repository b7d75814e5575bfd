/*
 * A process in namespaces of a user namespace in which it is not (setns): its child has made them. A name that it sets there
 * the child sees, and so it is with a semaphore.
 *
 * conform: root
 */
#include "namespaces.h"
#include <sys/ipc.h>
#include <sys/sem.h>

enum { KEY = 0x5eed };

static void expect_name(const char *who, const char *expected)
{
	char name[64];
	BUILD(gethostname(name, sizeof name));
	EXPECT_TEXT(who, name, expected);
}

static void lives_inside(void *unused)
{
	(void)unused;
	become_inside(0, CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWNET);
	BUILD(sethostname("inner", 5));
	BUILD(semget(KEY, 1, IPC_CREAT | 0600));
	loopback(true);
	conform_mark("inside");
	conform_wait();
	conform_await("changed");
	expect_name("name inside", "changed");
	EXPECT("value of the semaphore", semctl((int)BUILD(semget(KEY, 1, 0)), 0, GETVAL), 3);
}

static void stays(void *unused)
{
	(void)unused;
	char name[64];
	BUILD(gethostname(name, sizeof name));
	conform_mark("stays");
	conform_wait();
	expect_name("name of the job", name);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	static const char *const files[] = { "uts", "ipc", "net" };
	pid_t outside = conform_spawn(stays, NULL), inside = conform_spawn(lives_inside, NULL);
	char path[64], own[64], its[64];
	conform_await("stays");
	conform_await("inside");
	for (size_t file = 0; file < sizeof files / sizeof files[0]; file++) {
		snprintf(path, sizeof path, "/proc/%d/ns/%s", inside, files[file]);
		int fd = (int)BUILD(open(path, O_RDONLY | O_CLOEXEC));
		BUILD(setns(fd, 0));
		BUILD(close(fd));
	}
	conform_ready();
	conform_wait();
	expect_name("name", "inner");
	EXPECT("loopback device is up", (loopback(false) & IFF_UP) != 0, 1);
	for (size_t file = 0; file < sizeof files / sizeof files[0]; file++) {
		namespace_name(files[file], own, sizeof own);
		snprintf(path, sizeof path, "/proc/%d/ns/%s", inside, files[file]);
		its[BUILD(readlink(path, its, sizeof its - 1))] = 0;
		EXPECT_TEXT("namespace", own, its);
	}
	namespace_name("user", own, sizeof own);
	snprintf(path, sizeof path, "/proc/%d/ns/user", inside);
	its[BUILD(readlink(path, its, sizeof its - 1))] = 0;
	EXPECT("other user namespace", strcmp(own, its) != 0, 1);
	BUILD(sethostname("changed", 7));
	union semun {
		int value;
	} value = { .value = 3 };
	BUILD(semctl((int)BUILD(semget(KEY, 1, 0)), 0, SETVAL, value));
	conform_mark("changed");
	conform_join(inside);
	conform_join(outside);
	conform_pass();
}
