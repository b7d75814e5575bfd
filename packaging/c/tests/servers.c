/* Servers that come while a group waits for one. CONFIGURATION: two at a time at first */
#include <ng_group.h>
#include <sys/resource.h>

#include "check.h"

/* The most processor time of a program that only waits, in seconds. */
#define MOST 1.0

static double used(void)
{
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void count(ng_group_t *group, grpc_sessionid_t call, grpc_error_t error, void **arguments, void *data)
{
    CHECK(group != NULL && call > 0 && arguments != NULL);
    *(int *)data += error == GRPC_CANCELED_NP;
}

int main(int argc, char **argv)
{
    ng_group_t group;
    long results[3];
    int cancelled = 0;
    CHECK(argc == 2 && grpc_initialize(argv[1]) == GRPC_NO_ERROR && grpc_servers_np() == 2);
    CHECK(ng_group_init(&group, "t/wait", NULL, count, &cancelled) == GRPC_NO_ERROR);
    for (int i = 0; i < 3; i++) {
        CHECK(ng_group_call(&group, 600, &results[i]) == GRPC_NO_ERROR);
        printf("call %d\n", i + 1);
        fflush(stdout);
    }
    CHECK(grpc_servers_np() == 3);
    CHECK(ng_group_cancel_np(&group) == GRPC_NO_ERROR);
    CHECK(ng_group_wait_done(&group) == GRPC_SESSION_FAILED && cancelled == 3);
    CHECK(ng_group_fin(&group) == GRPC_NO_ERROR && grpc_finalize() == GRPC_NO_ERROR);
    CHECK(used() < MOST);
    puts("right");
    return 0;
}
