/*
 * SysV semaphores: values, permissions and numbers, who changed one last, what each process gives back at its end, and
 * processes that wait.
 */
#include "conform.h"

static void enter(void)
{
}

#include "sysvsem.inc"
