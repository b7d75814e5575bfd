/*
 * A file that is mapped by all who use it, and open no more, in a folder which may not be searched any more.
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
	BUILD(ftruncate(fd, CONFORM_PAGE));
	conform_map(CONFORM_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd);
	BUILD(close(fd));
	BUILD(chmod(conform_path("closed"), 0));
	conform_expect_refusal(getpid(), -1);
	conform_ready();
	conform_wait();
	BUILD(chmod(conform_path("closed"), 0755));
	conform_pass();
}
