/* A process that is to be told when a message comes into a POSIX queue (mq_notify) that has some: any would be told of. */
#include "../queue.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	char bytes[8];
	mqd_t queue = queue_make_unlinked(0);
	sigset_t user;
	siginfo_t told;
	struct timespec now = { 0, 0 };
	sigemptyset(&user);
	sigaddset(&user, SIGUSR1);
	BUILD(sigprocmask(SIG_BLOCK, &user, NULL));
	BUILD(mq_send(queue, "", 0, 0));
	struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 42 };
	BUILD(mq_notify(queue, &event));
	conform_expect_refusal(getpid(), (int)queue);
	conform_ready();
	conform_wait();
	EXPECT_ERROR("told", sigtimedwait(&user, &told, &now), EAGAIN);
	EXPECT("message", mq_receive(queue, bytes, sizeof bytes, NULL), 0);
	BUILD(mq_send(queue, "x", 1, 0));
	EXPECT("signal", sigwaitinfo(&user, &told), SIGUSR1);
	EXPECT("value", told.si_value.sival_int, 42);
	conform_pass();
}
