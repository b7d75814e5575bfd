/*
 * The message queues of sysvqueue, in an IPC namespace that belongs to a user namespace of the program's own.
 */
#include "namespaces.h"

static void enter(void)
{
	become_inside(0, CLONE_NEWIPC);
}

#include "sysvqueue.inc"
