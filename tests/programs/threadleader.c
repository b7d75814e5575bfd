/* A process whose first thread has ended while another goes on. */
#include "conform.h"
#include <pthread.h>
#include <sys/syscall.h>

static pthread_t first;

static void *goes_on(void *unused)
{
	(void)unused;
	BUILD0(pthread_join(first, NULL));
	pid_t process = getpid(), tid = (pid_t)syscall(SYS_gettid);
	conform_ready();
	conform_wait();
	EXPECT("pid", getpid(), process);
	EXPECT("tid", syscall(SYS_gettid), tid);
	conform_pass();
}

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	pthread_t thread;
	first = pthread_self();
	BUILD0(pthread_create(&thread, NULL, goes_on, NULL));
	pthread_exit(NULL);
}
