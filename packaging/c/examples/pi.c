/*
 * Pi by throwing points, in calls of which as many run at a time as the farm has servers.
 *
 *     make -C .. && ckptd farm register --stub pi.idl > pi_server.c
 *     cc -I../include -o pi_server pi_server.c pi_trial.c ../build/libckptd_farm.a -pthread
 *     ckptd farm register pi.idl --program ./pi_server
 *     cc -I../include -o pi pi.c ../build/libckptd_farm.a -pthread && ./pi 100 10000000
 */
#include <grpc.h>
#include <ng_group.h>
#include <stdio.h>
#include <stdlib.h>

struct sum {
    long points, calls, times;
};

/* A call has ended: its count is added. */
static void consume(ng_group_t *group, grpc_sessionid_t call, grpc_error_t error, void **arguments, void *data)
{
    struct sum *sum = data;
    char why[256] = "";
    (void)group;
    if (error == GRPC_NO_ERROR) {
        sum->points += *(long *)arguments[2];
        sum->calls++;
        return;
    }
    grpc_session_message_np(call, why, sizeof why);
    fprintf(stderr, "call %d: %s: %s\n", *(int *)arguments[0], grpc_error_string(error), why);
}

/* Nobody needs its arguments any more. */
static void cleanup(ng_group_t *group, void **arguments, void *data)
{
    (void)group;
    (void)data;
    free(arguments[2]);
}

static int fail(const char *what)
{
    grpc_perror_np((char *)what);
    return EXIT_FAILURE;
}

int main(int argc, char **argv)
{
    int calls = argc > 1 ? atoi(argv[1]) : 20;
    struct sum sum = {0, 0, argc > 2 ? atol(argv[2]) : 1000000};
    ng_group_t group;
    if (grpc_initialize(argc > 3 ? argv[3] : NULL) != GRPC_NO_ERROR)
        return fail("grpc_initialize");
    if (ng_group_init(&group, "pi/pi_trial", cleanup, consume, &sum) != GRPC_NO_ERROR)
        return fail("ng_group_init");
    ng_group_set_property(&group, NG_GROUP_AUTO_REINVOKE, 2);
    for (int seed = 0; seed < calls; seed++) {
        long *count = malloc(sizeof *count);
        if (count == NULL || ng_group_call(&group, seed, sum.times, count) != GRPC_NO_ERROR) {
            free(count);
            return fail("ng_group_call");
        }
    }
    if (ng_group_wait_done(&group) != GRPC_NO_ERROR)
        return fail("ng_group_wait_done");
    printf("%ld calls, %ld points, pi is about %.4f\n", sum.calls, sum.points,
           4.0 * (double)sum.points / ((double)sum.calls * (double)sum.times));
    ng_group_fin(&group);
    return grpc_finalize() == GRPC_NO_ERROR ? EXIT_SUCCESS : fail("grpc_finalize");
}
