/*
 * A FIFO that is open for reading in a folder which may not be searched any more: nobody knows whether its name leads to it.
 *
 * conform: user
 * conform: work=/var/tmp
 */
#include "../conform.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("closed"), 0755));
	BUILD(mkfifo(conform_path("closed/fifo"), 0600));
	int fd = (int)BUILD(open(conform_path("closed/fifo"), O_RDONLY | O_NONBLOCK));
	BUILD(chmod(conform_path("closed"), 0));
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	BUILD(chmod(conform_path("closed"), 0755));
	conform_pass();
}
