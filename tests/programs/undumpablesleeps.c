/*
 * Every relative sleep of a process that nobody may look into (PR_SET_DUMPABLE): what it sleeps in is seen only once it
 * stands.
 */
#include "conform.h"
#include <sys/prctl.h>

static void begin(void)
{
	BUILD(prctl(PR_SET_DUMPABLE, 0));
}

#include "sleeps.inc"
