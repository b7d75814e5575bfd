/*
 * A trigger on the pressure of the machine (/proc/pressure): what was written is told nowhere.
 */
#include "conform.h"
#include <poll.h>

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	static const char wanted[] = "some 500000 2000000";
	int fd = open("/proc/pressure/cpu", O_RDWR | O_NONBLOCK);
	if (fd < 0 || write(fd, wanted, sizeof wanted) < 0)
		conform_skip("this kernel or user has none");
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	struct pollfd polled = { .fd = fd, .events = POLLPRI };
	BUILD(poll(&polled, 1, 0));
	EXPECT("the trigger is there", polled.revents & POLLERR, 0);
	conform_pass();
}
