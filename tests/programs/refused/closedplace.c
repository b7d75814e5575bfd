/*
 * A file that is known by its place alone (O_PATH), in a folder which may not be searched any more.
 *
 * conform: user
 * conform: work=/var/tmp
 */
#include "../conform.h"

static int open_inside(void)
{
	BUILD(close((int)BUILD(open(conform_path("closed/file"), O_RDWR | O_CREAT, 0600))));
	int fd = (int)BUILD(open(conform_path("closed/file"), O_PATH));
	return fd;
}

#include "closed.inc"
