/*
 * Descriptors of processes: of this one, its parent's, a child's that runs, one's that has ended and one's that was waited for, and
 * of a thread; shared by fork, waited for by epoll and by waitid(P_PIDFD), used for signals and for descriptors.
 */
#include "conform.h"
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <poll.h>

enum { OF_THREAD = O_EXCL };
#ifndef P_PIDFD
#define P_PIDFD 3
#endif
static int child_fd, self_fd, pipe_ends[2];
static volatile sig_atomic_t signals;
static _Atomic pid_t other;

static int open_pid(pid_t pid, int flags) { return (int)syscall(SYS_pidfd_open, pid, flags); }

static int send_to(int fd, int signal) { return (int)syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0); }

static void count(int signal) { (void)signal; signals++; }

static void waits(void *unused)
{
	(void)unused;
	conform_await("checked");
	/* The descriptor that was inherited. */
	BUILD(send_to(self_fd, SIGUSR2));
	int copy = (int)syscall(SYS_pidfd_getfd, self_fd, pipe_ends[0], 0);
	if (copy >= 0)
		conform_expect_bytes("through the parent's descriptor", copy, "hello");
	_exit(17);
}

static void ends(void *unused) { (void)unused; }

static void ends_with_3(void *unused)
{
	(void)unused;
	_exit(3);
}

static void *idles(void *unused)
{
	(void)unused;
	other = (pid_t)syscall(SYS_gettid);
	conform_await("checked");
	return NULL;
}

static bool ended(int fd)
{
	struct pollfd one = {.fd = fd, .events = POLLIN};
	return BUILD(poll(&one, 1, 0)) == 1 && one.revents & POLLIN;
}

/* Since Linux 6.9 each process has its own. */
static ino_t inode_of(int fd)
{
	struct stat status;
	BUILD(fstat(fd, &status));
	return status.st_ino;
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
	BUILD(sigaction(SIGUSR1, &action, NULL));
	BUILD(sigaction(SIGUSR2, &action, NULL));
	BUILD(pipe(pipe_ends));
	self_fd = open_pid(getpid(), 0);
	if (self_fd < 0 && errno == ENOSYS)
		conform_skip("this kernel has no pidfd_open");
	BUILD(self_fd);
	int ended_fd, reaped_fd;
	pid_t reaped = conform_spawn(ends, NULL);
	reaped_fd = (int)BUILD(open_pid(reaped, 0));
	int twin = (int)BUILD(open_pid(reaped, O_NONBLOCK));
	conform_join(reaped);
	pid_t another = conform_spawn(ends, NULL);
	int another_fd = (int)BUILD(open_pid(another, 0));
	conform_join(another);
	int tells = inode_of(reaped_fd) != inode_of(another_fd);
	pid_t zombie = conform_spawn(ends_with_3, NULL);
	ended_fd = (int)BUILD(open_pid(zombie, O_NONBLOCK));
	while (!ended(ended_fd))
		conform_sleep_ms(1);
	pid_t child = conform_spawn(waits, NULL);
	child_fd = (int)BUILD(open_pid(child, O_NONBLOCK));
	BUILD(fcntl(child_fd, F_SETFD, 0));
	int copy = (int)BUILD(dup(child_fd));
	pthread_t thread;
	BUILD0(pthread_create(&thread, NULL, idles, NULL));
	while (!other)
		conform_sleep_ms(1);
	int thread_fd = open_pid(other, OF_THREAD);
	int waiting = (int)BUILD(epoll_create1(0));
	struct epoll_event event = {.events = EPOLLIN, .data.u64 = 5};
	BUILD(epoll_ctl(waiting, EPOLL_CTL_ADD, child_fd, &event));
	BUILD(epoll_ctl(waiting, EPOLL_CTL_ADD, self_fd, &event));

	conform_ready();
	conform_wait();

	EXPECT("flags of a descriptor", fcntl(child_fd, F_GETFD), 0);
	EXPECT("flags of another", fcntl(self_fd, F_GETFD), FD_CLOEXEC);
	EXPECT("a child that runs has ended", ended(child_fd), 0);
	EXPECT("this process has ended", ended(self_fd), 0);
	EXPECT("a child that has ended", ended(ended_fd), 1);
	EXPECT_ERROR("a signal for one that was waited for", send_to(reaped_fd, 0), ESRCH);
	EXPECT("two of the same ended process", inode_of(twin), inode_of(reaped_fd));
	if (tells)
		EXPECT("one of another", inode_of(another_fd) != inode_of(reaped_fd), 1);
	BUILD(send_to(self_fd, SIGUSR1));
	EXPECT("signals", signals, 1);
	if (thread_fd >= 0)
		BUILD(send_to(thread_fd, 0));
	siginfo_t info = {0};
	BUILD(waitid((idtype_t)P_PIDFD, (id_t)ended_fd, &info, WEXITED));
	EXPECT("status of the one that had ended", info.si_status, 3);
	EXPECT("nobody else is ready", epoll_wait(waiting, &event, 1, 0), 0);
	EXPECT_ERROR("a wait that does not wait", waitid((idtype_t)P_PIDFD, (id_t)copy, &info, WEXITED), EAGAIN);
	conform_write_all(pipe_ends[1], "hello", 5);
	conform_mark("checked");
	int ready;
	do
		ready = epoll_wait(waiting, &event, 1, 10000);
	while (ready < 0 && errno == EINTR);
	EXPECT("one is ready", ready, 1);
	EXPECT("signals by the child", signals, 2);
	BUILD(waitid((idtype_t)P_PIDFD, (id_t)copy, &info, WEXITED));
	EXPECT("its status", info.si_status, 17);
	BUILD0(pthread_join(thread, NULL));
	conform_pass();
}
