/*
 * SysV message queues: messages with their types and order, permissions, numbers, a size that was set; who waits for a
 * message of a type, and who waits for room.
 */
#include "conform.h"

static void enter(void)
{
}

#include "sysvqueue.inc"
