/*
 * Mapped files with odd names: those that look like line feeds as /proc/PID/maps tells them.
 */
#include "conform.h"

static const char *const names[] = { "a\\012b" };
#include "mappednames.inc"
