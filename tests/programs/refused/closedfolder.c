/*
 * A file that is open in a folder which may not be searched any more: nobody knows whether its name leads to it.
 *
 * conform: user
 * conform: work=/var/tmp
 */
#include "../conform.h"

static int open_inside(void)
{
	int fd = (int)BUILD(open(conform_path("closed/file"), O_RDWR | O_CREAT, 0600));
	conform_write_all(fd, "here", 4);
	return fd;
}

#include "closed.inc"
