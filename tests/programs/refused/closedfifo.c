/*
 * A FIFO that is open for reading in a folder which may not be searched any more: nobody knows whether its name leads to it.
 *
 * conform: user
 * conform: work=/var/tmp
 */
#include "../conform.h"

static int open_inside(void)
{
	BUILD(mkfifo(conform_path("closed/fifo"), 0600));
	int fd = (int)BUILD(open(conform_path("closed/fifo"), O_RDONLY | O_NONBLOCK));
	return fd;
}

#include "closed.inc"
