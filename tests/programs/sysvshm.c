/*
 * SysV shared memory: a segment with a key and one that is marked for destruction, each attached by two processes,
 * for reading, for writing, twice, and in part; one that nobody has attached.
 */
#include "conform.h"

static void enter(void)
{
}

#include "sysvshm.inc"
