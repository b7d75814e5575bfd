/*
 * Every relative sleep in the kernel: each lasts as long as was asked, no less and not again from the start, and
 * returns what it would have returned.
 */
#include "conform.h"

static void begin(void)
{
}

#include "sleeps.inc"
