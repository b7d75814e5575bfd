/*
 * Files outside of the session directories that are mapped and written, one of them with a name that looks like a line feed as
 * /proc/PID/maps tells it, and one with a line feed in it.
 *
 * conform: work=/var/tmp
 */
#include "conform.h"

static const char *const names[] = {"plain", "a\\012b", "c\nd"};
#include "mappednames.inc"
