/*
 * A child whose main thread has ended while two others go on: its descriptors, memory, names and working directory, a child of its
 * own, and the status that its parent gets in the end: the main thread's, or, since Linux 5.17, the last one's.
 */
#include "conform.h"
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

enum { STATUS = 37, SIZE = 5 * 4096 + 12 };

static int ends[2];
static char *memory;
static pthread_t first, writing;
static pid_t grandchild;

static void waits(void *unused)
{
	(void)unused;
	conform_mark("grandchild");
	conform_wait();
}

static void check(pid_t process, pid_t own)
{
	char name[64], path[512];
	EXPECT("pid", getpid(), process);
	EXPECT("tid", syscall(SYS_gettid), own);
	conform_verify("memory", memory, SIZE, 11);
	snprintf(path, sizeof path, "/proc/%d/comm", process);
	conform_read_file(path, name, sizeof name);
	EXPECT_TEXT("name of the process", name, "ended-main\n");
	EXPECT("working directory", access("go", F_OK), 0);
}

static void *writes(void *unused)
{
	pid_t process = getpid(), own = (pid_t)syscall(SYS_gettid);
	BUILD0(pthread_join(first, NULL));
	conform_mark("writes");
	conform_wait();
	check(process, own);
	conform_write_all(ends[1], "through", 7);
	return unused;
}

static void *reads(void *unused)
{
	pid_t process = getpid(), own = (pid_t)syscall(SYS_gettid);
	char bytes[8] = "";
	conform_mark("reads");
	conform_read_all(ends[0], bytes, 7);
	EXPECT_TEXT("bytes of the other thread", bytes, "through");
	conform_await("go");
	check(process, own);
	conform_join(grandchild);
	BUILD0(pthread_join(writing, NULL));
	BUILD(syscall(SYS_exit, STATUS));
	return unused;
}

static void child(void *unused)
{
	(void)unused;
	pthread_t reading;
	BUILD(chdir(conform_path(".")));
	BUILD(pipe(ends));
	memory = conform_map(SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE, -1);
	conform_fill(memory, SIZE, 11);
	grandchild = conform_spawn(waits, NULL);
	first = pthread_self();
	BUILD(prctl(PR_SET_NAME, "ended-main"));
	BUILD0(pthread_create(&writing, NULL, writes, NULL));
	BUILD0(pthread_create(&reading, NULL, reads, NULL));
	BUILD(syscall(SYS_exit, STATUS));
}

int main(int argc, char **argv)
{
	int status;
	conform_start(argc, argv);
	pid_t process = conform_spawn(child, NULL);
	conform_await("writes");
	conform_await("reads");
	conform_await("grandchild");
	conform_ready();
	conform_wait();
	EXPECT("child that ends", waitpid(process, &status, 0), process);
	EXPECT("status of a child", status, STATUS << 8);
	conform_pass();
}
