/*
 * A file that is open in a folder which may not be searched any more: nobody knows whether its name leads to it.
 *
 * conform: user
 * conform: work=/var/tmp
 */
#include "../conform.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("closed"), 0755));
	int fd = (int)BUILD(open(conform_path("closed/file"), O_RDWR | O_CREAT, 0600));
	conform_write_all(fd, "here", 4);
	BUILD(chmod(conform_path("closed"), 0));
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	BUILD(chmod(conform_path("closed"), 0755));
	conform_pass();
}
