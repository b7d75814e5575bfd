/*
 * Open files of /proc that show a process: this one, a child, one that has ended and is still to be waited for, one that is gone,
 * a thread; read in part, written, searched, shared by fork, waited for by epoll.
 */
#include "conform.h"
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

struct told {
	_Atomic pid_t child, idle;
};
static struct told *told;
static int shared_fd;
static volatile int watched = 4711;

static const char *path_of(pid_t pid, const char *name)
{
	static char path[64];
	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
	return path;
}

static void child(void *unused)
{
	(void)unused;
	conform_await("checked");
	/* Of the parent, by the description that it has, too. */
	char four[4];
	BUILD(read(shared_fd, four, sizeof four));
	told->child = getpid();
	conform_mark("told");
	conform_await("done");
}

static void ends(void *unused) { (void)unused; }

static void *idles(void *unused)
{
	(void)unused;
	told->idle = (pid_t)syscall(SYS_gettid);
	conform_await("renamed");
	char name[17] = {0};
	BUILD(prctl(PR_GET_NAME, name));
	EXPECT_TEXT("name of the thread", name, "renamed");
	told->idle = (pid_t)syscall(SYS_gettid);
	conform_mark("named");
	return NULL;
}

static int number_in(int fd)
{
	char text[512] = {0};
	BUILD(pread(fd, text, sizeof text - 1, 0));
	return atoi(text);
}

static char state_in(int fd)
{
	char text[512] = {0};
	BUILD(pread(fd, text, sizeof text - 1, 0));
	const char *end = strrchr(text, ')');
	return end ? end[2] : '?';
}

static off_t at(int fd) { return lseek(fd, 0, SEEK_CUR); }

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	told = conform_map(sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1);
	char bytes[300];
	int maps = (int)BUILD(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
	conform_read_all(maps, bytes, 100);
	int memory = (int)BUILD(open("/proc/self/mem", O_RDWR));
	BUILD(lseek(memory, (off_t)(uintptr_t)&watched, SEEK_SET));
	int folder = (int)BUILD(open("/proc/self/fd", O_RDONLY | O_DIRECTORY));
	/* Room for a few entries only. */
	BUILD(syscall(SYS_getdents64, folder, bytes, 100));
	off_t reached = at(folder);
	int score = (int)BUILD(open("/proc/self/oom_score_adj", O_WRONLY));
	int own = (int)BUILD(open("/proc/self", O_PATH | O_DIRECTORY));
	int link = (int)BUILD(open("/proc/self/exe", O_PATH | O_NOFOLLOW));
	int network = (int)BUILD(open("/proc/self/net/dev", O_RDONLY | O_NONBLOCK));
	shared_fd = (int)BUILD(open("/proc/self/stat", O_RDONLY));
	int mounts = (int)BUILD(open("/proc/self/mountinfo", O_RDONLY));
	int waiting = (int)BUILD(epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 5};
	BUILD(epoll_ctl(waiting, EPOLL_CTL_ADD, mounts, &event));

	pid_t gone = conform_spawn(ends, NULL);
	/* It is gone only once it was waited for; until then it can be opened. */
	int of_gone = (int)BUILD(open(path_of(gone, "status"), O_RDONLY));
	int folder_of_gone = (int)BUILD(open(path_of(gone, "task"), O_RDONLY | O_DIRECTORY));
	conform_join(gone);
	pid_t zombie = conform_spawn(ends, NULL);
	int of_zombie = (int)BUILD(open(path_of(zombie, "stat"), O_RDONLY));
	while (state_in(of_zombie) != 'Z')
		conform_sleep_ms(1);
	pid_t lives = conform_spawn(child, NULL);
	int of_child = (int)BUILD(open(path_of(lives, "stat"), O_RDONLY));
	pthread_t thread;
	BUILD0(pthread_create(&thread, NULL, idles, NULL));
	while (!told->idle)
		conform_sleep_ms(1);
	char name[64];
	snprintf(name, sizeof name, "/proc/self/task/%d/comm", (int)told->idle);
	int comm = (int)BUILD(open(name, O_RDWR));
	snprintf(name, sizeof name, "/proc/self/task/%d/stat", (int)told->idle);
	int of_thread = (int)BUILD(open(name, O_RDONLY));

	conform_ready();
	conform_wait();

	EXPECT("where reading of the maps goes on", at(maps), 100);
	EXPECT("flags of the maps' descriptor", fcntl(maps, F_GETFD), FD_CLOEXEC);
	EXPECT("flags of another", fcntl(memory, F_GETFD), 0);
	EXPECT("there are more maps", BUILD(read(maps, bytes, sizeof bytes)) > 0, 1);
	EXPECT("where memory is read", at(memory) == (off_t)(uintptr_t)&watched, 1);
	int value = 0;
	conform_read_all(memory, &value, sizeof value);
	EXPECT("what is read there", value, 4711);
	value = 4712;
	EXPECT("bytes written", pwrite(memory, &value, sizeof value, (off_t)(uintptr_t)&watched), sizeof value);
	EXPECT("what was written", watched, 4712);
	EXPECT("where reading of a folder goes on", at(folder), reached);
	EXPECT("there are more entries", BUILD(syscall(SYS_getdents64, folder, bytes, sizeof bytes)) > 0, 1);
	EXPECT("access to the score", fcntl(score, F_GETFL) & O_ACCMODE, O_WRONLY);
	conform_write_all(score, "500", 3);
	char text[64];
	conform_read_file("/proc/self/oom_score_adj", text, sizeof text);
	EXPECT_TEXT("the score", text, "500\n");
	int status = (int)BUILD(openat(own, "stat", O_RDONLY));
	EXPECT("the number in the own folder", number_in(status), getpid());
	EXPECT("a link's length", BUILD(readlinkat(link, "", bytes, sizeof bytes)) > 0, 1);
	EXPECT("status flags", fcntl(network, F_GETFL) & O_NONBLOCK, O_NONBLOCK);
	EXPECT("interfaces are there", pread(network, bytes, sizeof bytes, 0) > 0, 1);
	EXPECT("one is ready", epoll_wait(waiting, &event, 1, 0), 1);
	EXPECT("which", event.data.u64, 5);
	EXPECT_ERROR("the status of one that is gone", read(of_gone, bytes, sizeof bytes), ESRCH);
	EXPECT_ERROR("its folder", syscall(SYS_getdents64, folder_of_gone, bytes, sizeof bytes), ENOENT);
	EXPECT("the state of one that has ended", state_in(of_zombie), 'Z');
	EXPECT("the number of this one", number_in(shared_fd), getpid());
	EXPECT("where it is read", at(shared_fd), 0);
	conform_write_all(comm, "renamed", 7);
	conform_mark("renamed");
	conform_await("named");
	conform_mark("checked");
	conform_await("told");
	EXPECT("where the child has read", at(shared_fd), 4);
	EXPECT("the child's number", number_in(of_child), told->child);
	conform_mark("done");
	BUILD0(pthread_join(thread, NULL));
	/* The thread is gone, and so is what shows it. */
	EXPECT_ERROR("a thread that is gone", pread(of_thread, bytes, sizeof bytes, 0), ESRCH);
	BUILD(wait(NULL));
	BUILD(wait(NULL));
	EXPECT_ERROR("a child that is gone", pread(of_child, bytes, sizeof bytes, 0), ESRCH);
	conform_pass();
}
