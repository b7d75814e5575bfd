/*
 * Processes that are told of the next message in a POSIX queue (mq_notify): by a signal that is blocked, by one that has a
 * handler or none, with a number or a pointer, of a child, with a thread that waits for it; by none at all; one that is told
 * by no number.
 */
#include "queue.h"
#include <pthread.h>

static volatile sig_atomic_t told;
static void *volatile said;

static void tell(int signal, siginfo_t *info, void *unused)
{
	(void)signal, (void)unused;
	told++;
	said = info->si_value.sival_ptr;
}

static void ask(mqd_t queue, int kind, int signal, void *value)
{
	struct sigevent event = { .sigev_notify = kind, .sigev_signo = signal, .sigev_value.sival_ptr = value };
	BUILD(mq_notify(queue, &event));
}

static void expect_taken(const char *what, mqd_t queue)
{
	struct sigevent event = { .sigev_notify = SIGEV_NONE };
	EXPECT_ERROR(what, mq_notify(queue, &event), EBUSY);
}

static void expect_empty(const char *what, mqd_t queue)
{
	struct mq_attr found;
	BUILD(mq_getattr(queue, &found));
	EXPECT(what, found.mq_curmsgs, 0);
}

static void expect_told(mqd_t queue, int signal, long value)
{
	sigset_t set;
	siginfo_t info;
	sigemptyset(&set);
	sigaddset(&set, signal);
	BUILD(mq_send(queue, "x", 1, 0));
	EXPECT("signal", sigwaitinfo(&set, &info), signal);
	EXPECT("code", info.si_code, SI_MESGQ);
	EXPECT("value", (long)info.si_value.sival_ptr, value);
	EXPECT("sender", info.si_pid, getpid());
}

/* Is woken by nothing but the message that is sent at last. */
static void *waits(void *unused)
{
	sigset_t set;
	siginfo_t info;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	BUILD0(pthread_sigmask(SIG_BLOCK, &set, NULL));
	sigdelset(&set, SIGUSR2);
	sigaddset(&set, SIGRTMIN + 3);
	conform_mark("waits");
	EXPECT("signal of a waiting thread", sigwaitinfo(&set, &info), SIGRTMIN + 3);
	EXPECT("value for a waiting thread", info.si_value.sival_int, 99);
	EXPECT("it was awaited", conform_gone(), 1);
	return unused;
}

static void child(void *unused)
{
	(void)unused;
	mqd_t queue = queue_make_unlinked(9);
	int copy = BUILD(dup((int)queue));
	EXPECT("another", copy > (int)queue, 1);
	ask(queue, SIGEV_SIGNAL, SIGRTMIN + 2, (void *)0x123456789abcL);
	conform_mark("child");
	conform_wait();
	expect_empty("the child's queue", queue);
	expect_told(queue, SIGRTMIN + 2, 0x123456789abcL);
	/* Once. */
	ask(queue, SIGEV_NONE, 0, NULL);
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	struct sigaction action = { .sa_sigaction = tell, .sa_flags = SA_SIGINFO };
	sigset_t set;
	mqd_t blocked = queue_make_unlinked(1), handled = queue_make_unlinked(2);
	mqd_t fatal = queue_make_unlinked(3), ignored = queue_make_unlinked(4);
	mqd_t none = queue_make_unlinked(5), silent = queue_make_unlinked(6);
	mqd_t awaited = queue_make_unlinked(7);
	pthread_t waiter;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigaddset(&set, SIGRTMIN + 2);
	sigaddset(&set, SIGRTMIN + 3);
	BUILD(sigprocmask(SIG_BLOCK, &set, NULL));
	BUILD(sigaction(SIGRTMIN + 1, &action, NULL));
	BUILD(signal(SIGHUP, SIG_IGN) == SIG_ERR ? -1 : 0);
	pid_t pid = conform_spawn(child, NULL);
	conform_await("child");
	ask(blocked, SIGEV_SIGNAL, SIGUSR1, (void *)42);
	ask(handled, SIGEV_SIGNAL, SIGRTMIN + 1, &action);
	ask(fatal, SIGEV_SIGNAL, SIGUSR2, (void *)7);
	ask(ignored, SIGEV_SIGNAL, SIGHUP, (void *)8);
	ask(none, SIGEV_NONE, 0, NULL);
	ask(silent, SIGEV_SIGNAL, 0, NULL);
	BUILD0(pthread_create(&waiter, NULL, waits, NULL));
	conform_await("waits");
	ask(awaited, SIGEV_SIGNAL, SIGRTMIN + 3, (void *)99);
	conform_ready();
	conform_wait();
	EXPECT("told before", told, 0);
	expect_taken("blocked", blocked);
	expect_taken("handled", handled);
	expect_taken("none", none);
	expect_taken("silent", silent);
	expect_taken("ignored", ignored);
	expect_empty("blocked", blocked);
	expect_told(blocked, SIGUSR1, 42);
	ask(blocked, SIGEV_NONE, 0, NULL);
	BUILD(mq_send(handled, "x", 1, 0));
	EXPECT("told", told, 1);
	EXPECT("a pointer", said == &action, 1);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	BUILD(sigprocmask(SIG_BLOCK, &set, NULL));
	expect_told(fatal, SIGUSR2, 7);
	BUILD(mq_send(ignored, "x", 1, 0));
	ask(ignored, SIGEV_NONE, 0, NULL);
	BUILD(mq_send(none, "x", 1, 0));
	ask(none, SIGEV_NONE, 0, NULL);
	BUILD(mq_send(silent, "x", 1, 0));
	ask(silent, SIGEV_NONE, 0, NULL);
	BUILD(mq_send(awaited, "x", 1, 0));
	BUILD0(pthread_join(waiter, NULL));
	conform_join(pid);
	conform_pass();
}
