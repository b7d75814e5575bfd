/*
 * A file that is known by its place alone (O_PATH), in a folder which may not be searched any more.
 *
 * conform: user
 * conform: work=/var/tmp
 */
#include "../conform.h"

int main(int argc, char **argv)
{
	conform_start(argc, argv);
	BUILD(mkdir(conform_path("closed"), 0755));
	BUILD(close((int)BUILD(open(conform_path("closed/file"), O_RDWR | O_CREAT, 0600))));
	int fd = (int)BUILD(open(conform_path("closed/file"), O_PATH));
	BUILD(chmod(conform_path("closed"), 0));
	conform_expect_refusal(getpid(), fd);
	conform_ready();
	conform_wait();
	BUILD(chmod(conform_path("closed"), 0755));
	conform_pass();
}
