/* A POSIX timer (timer_create). */
#include "conform.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	timer_t timer;
	struct sigevent nobody = {.sigev_notify = SIGEV_NONE};
	BUILD(timer_create(CLOCK_MONOTONIC, &nobody, &timer));
	struct itimerspec hour = {.it_value = {.tv_sec = 3600}};
	BUILD(timer_settime(timer, 0, &hour, NULL));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	struct itimerspec left;
	BUILD(timer_gettime(timer, &left));
	EXPECT_BETWEEN("seconds left", left.it_value.tv_sec, 3000, 3600);
	conform_pass();
}
