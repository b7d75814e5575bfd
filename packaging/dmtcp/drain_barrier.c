// A plugin for DMTCP 5.0-dev that makes checkpoints of jobs on several machines possible.
//
//     cc -shared -fPIC -o drain_barrier.so drain_barrier.c
//     dmtcp_launch --with-plugin $PWD/drain_barrier.so ...        (the path must be good on all machines)
//
// Before a checkpoint, DMTCP's processes empty their sockets of data, then say hello over each socket again. Between the two
// there is a barrier among the processes of one machine only: the hello of a faster machine then lies behind the data that a
// slower one is still reading, which takes it for data and waits for the end of the data for ever. Here that one barrier is of all
// processes, which ckptd's coordinator, as DMTCP's own, serves like any other.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

extern void dmtcp_global_barrier(const char *name);

void dmtcp_local_barrier(const char *name)
{
    static void (*local)(const char *);
    if (strcmp(name, "Socket::Drain") == 0) {
        dmtcp_global_barrier(name);
        return;
    }
    if (local == NULL)
        local = (void (*)(const char *))dlsym(RTLD_NEXT, "dmtcp_local_barrier");
    local(name);
}
