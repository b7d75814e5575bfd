/* What goes on in a PID namespace of a program's own, whichever way it was made. */
#ifndef PIDNAMESPACE_H
#define PIDNAMESPACE_H
#include "namespaces.h"
#include <pthread.h>
#include <sys/syscall.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

static pid_t dying_inside, session_inside, group_inside;

/* A thread keeps its number, can be signalled by it, and gets the expirations of its timer. */
static void *numbered(void *unused)
{
	pid_t number = (pid_t)syscall(SYS_gettid);
	timer_t timer;
	sigset_t set;
	siginfo_t info;
	struct sigevent event = { .sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN };
	struct itimerspec soon = { { 0, 20000000 }, { 0, 20000000 } };
	event.sigev_notify_thread_id = number;
	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	sigaddset(&set, SIGUSR2);
	BUILD0(pthread_sigmask(SIG_BLOCK, &set, NULL));
	BUILD(timer_create(CLOCK_MONOTONIC, &event, &timer));
	conform_wait();
	EXPECT("number of a thread", syscall(SYS_gettid), number);
	sigdelset(&set, SIGUSR2);
	BUILD(timer_settime(timer, 0, &soon, NULL));
	EXPECT("signal of a timer", sigwaitinfo(&set, &info), SIGRTMIN);
	BUILD(timer_delete(timer));
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	BUILD(syscall(SYS_tgkill, getpid(), number, SIGUSR2));
	EXPECT("signal by a thread's number", sigwaitinfo(&set, &info), SIGUSR2);
	EXPECT("sender", info.si_pid, getpid());
	return unused;
}

static void with_threads(void *unused)
{
	enum { THREADS = 4 };
	pthread_t threads[THREADS];
	pid_t number = getpid();
	(void)unused;
	for (int i = 0; i < THREADS; i++)
		BUILD0(pthread_create(&threads[i], NULL, numbered, NULL));
	conform_mark("in-threads");
	conform_wait();
	EXPECT("number of a process with threads", getpid(), number);
	EXPECT("its parent", getppid(), 1);
	for (int i = 0; i < THREADS; i++)
		BUILD0(pthread_join(threads[i], NULL));
}

/* A signal that is pending tells who has sent it; a lock tells who has it. */
static void waits_for_signal(void *unused)
{
	sigset_t set;
	siginfo_t info;
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	(void)unused;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	BUILD(sigprocmask(SIG_BLOCK, &set, NULL));
	int fd = (int)BUILD(open(conform_path("in-lock"), O_RDWR | O_CREAT, 0600));
	BUILD(fcntl(fd, F_SETLK, &lock));
	conform_mark("in-signal");
	conform_wait();
	EXPECT("pending signal", sigwaitinfo(&set, &info), SIGUSR1);
	EXPECT("who has sent it", info.si_pid, 1);
	conform_await("in-lock-seen");
}

static void orphan_inside(void *unused)
{
	(void)unused;
	while (getppid() == dying_inside)
		conform_sleep_ms(1);
	EXPECT("parent of an orphan", getppid(), 1);
	conform_mark("in-orphan");
	conform_wait();
	EXPECT("parent of an orphan", getppid(), 1);
}

static void dies_inside(void *unused)
{
	(void)unused;
	dying_inside = getpid();
	char number[16];
	int length = snprintf(number, sizeof number, "%d", conform_spawn(orphan_inside, NULL));
	int fd = (int)BUILD(open(conform_path("in-orphan-number"), O_WRONLY | O_CREAT, 0600));
	conform_write_all(fd, number, (size_t)length);
	BUILD(close(fd));
}

static void of_group(void *unused)
{
	(void)unused;
	conform_mark("in-group");
	conform_wait();
	EXPECT("session made inside", getsid(0), session_inside);
	EXPECT("group whose leader has ended", getpgrp(), group_inside);
}

static void leads_group(void *unused)
{
	(void)unused;
	BUILD(setpgid(0, 0));
	group_inside = getpid();
	conform_spawn(of_group, NULL);
	conform_await("in-group");
	BUILD(kill(getpid(), SIGKILL));
}

static void leads_session(void *unused)
{
	int status;
	(void)unused;
	session_inside = BUILD(setsid());
	/* The member becomes an orphan, which the first process gets. */
	pid_t leader = fork();
	if (leader == 0) {
		leads_group(NULL);
		_exit(0);
	}
	EXPECT("leader of a group", BUILD(waitpid(leader, &status, 0)), leader);
	conform_mark("in-session");
	conform_wait();
	EXPECT("session leader", getsid(0), getpid());
	EXPECT("its group", getpgrp(), getpid());
}

static void ends_at_once(void *unused)
{
	(void)unused;
}

/* What the first process of the namespace does. `group`: what its group is called inside. */
static void first_inside(pid_t group)
{
	int status, left = 0;
	char number[16];
	EXPECT("first number", getpid(), 1);
	EXPECT("parent outside", getppid(), 0);
	pid_t threads = conform_spawn(with_threads, NULL);
	pid_t waiting = conform_spawn(waits_for_signal, NULL);
	pid_t session = conform_spawn(leads_session, NULL);
	conform_join(conform_spawn(dies_inside, NULL));
	conform_await("in-threads");
	conform_await("in-signal");
	conform_await("in-session");
	conform_await("in-orphan");
	pid_t zombie = fork();
	if (zombie == 0)
		_exit(7);
	siginfo_t info;
	BUILD(waitid(P_PID, (id_t)zombie, &info, WEXITED | WNOWAIT));
	BUILD(kill(waiting, SIGUSR1));
	int pipes[2];
	BUILD(pipe(pipes));
	BUILD(fcntl(pipes[0], F_SETOWN, waiting));
	conform_read_file(conform_path("in-orphan-number"), number, sizeof number);
	pid_t orphan = atoi(number);
	conform_mark("in-ready");
	conform_wait();
	struct flock lock = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	EXPECT("first number", getpid(), 1);
	EXPECT("parent outside", getppid(), 0);
	EXPECT("group made outside", getpgrp(), group);
	EXPECT("session of a child", getsid(session), session);
	EXPECT("owner of a descriptor", fcntl(pipes[0], F_GETOWN), waiting);
	int fd = (int)BUILD(open(conform_path("in-lock"), O_RDWR));
	BUILD(fcntl(fd, F_GETLK, &lock));
	EXPECT("who has a lock", lock.l_pid, waiting);
	conform_mark("in-lock-seen");
	EXPECT("zombie", BUILD(waitpid(zombie, &status, 0)), zombie);
	EXPECT("its status", status, 7 << 8);
	EXPECT("child", BUILD(waitpid(threads, &status, 0)), threads);
	EXPECT("its status", status, 0);
	conform_join(waiting);
	conform_join(session);
	/* The orphans: one whose number is known, and the member of the group. */
	for (pid_t ended; (ended = wait(&status)) > 0; left++) {
		EXPECT("status of an orphan", status, 0);
		orphan = ended == orphan ? 0 : orphan;
	}
	EXPECT("orphans", left, 2);
	EXPECT("orphan by its number", orphan, 0);
	pid_t next = conform_spawn(ends_at_once, NULL);
	EXPECT("new number", next > 1, 1);
	conform_join(next);
}
#endif
