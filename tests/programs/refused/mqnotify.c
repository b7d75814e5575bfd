/* A process that is to be told of messages in a POSIX queue (mq_notify): what it is to be told with can't be read. */
#include "conform.h"
#include <mqueue.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char name[256];
	snprintf(name, sizeof name, "/notify-%d", getpid());
	struct mq_attr attributes = {.mq_maxmsg = 2, .mq_msgsize = 8};
	mqd_t queue = mq_open(name, O_CREAT | O_EXCL | O_RDWR | O_NONBLOCK, 0600, &attributes);
	if (queue == (mqd_t)-1 && errno == ENOSYS)
		conform_skip("this kernel has no POSIX message queues");
	BUILD(queue);
	BUILD(mq_unlink(name));
	sigset_t user;
	sigemptyset(&user);
	sigaddset(&user, SIGUSR1);
	BUILD(sigprocmask(SIG_BLOCK, &user, NULL));
	struct sigevent signal = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 42};
	BUILD(mq_notify(queue, &signal));
	conform_expect_refusal(getpid(), (int)queue);
	conform_ready();
	conform_wait();
	BUILD(mq_send(queue, "x", 1, 0));
	siginfo_t told;
	EXPECT("signal", sigwaitinfo(&user, &told), SIGUSR1);
	EXPECT("value", told.si_value.sival_int, 42);
	conform_pass();
}
