/* Groups of calls: callbacks, calls in callbacks, throttling, failures, threads. CONFIGURATION FOLDER: there is room
   for files. */
#include <ng_group.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>

#include "check.h"

struct seen {
    long sum;
    int consumed, cleaned, failed, more;
    grpc_error_t error;
    bool is_over;
    atomic_int inside;
    pthread_t thread;
};

static void consume(ng_group_t *group, grpc_sessionid_t call, grpc_error_t error, void **arguments, void *data)
{
    struct seen *seen = data;
    CHECK(call > 0 && atomic_fetch_add(&seen->inside, 1) == 0);
    CHECK(seen->consumed++ == seen->cleaned);
    seen->thread = pthread_self();
    seen->error = error;
    seen->failed += error != GRPC_NO_ERROR;
    if (error == GRPC_NO_ERROR)
        seen->sum += *(long *)arguments[1];
    /* With a thread, it may be called before or after grpc_finalize is through. */
    grpc_error_t refused = ng_group_wait_done(group);
    CHECK(refused == GRPC_OTHER_ERROR_CODE || (seen->is_over && refused == GRPC_NOT_INITIALIZED));
    CHECK_ERROR(ng_group_fin(group), GRPC_OTHER_ERROR_CODE, "callback");
    if (seen->more > 0) {
        long *result = malloc(sizeof *result);
        CHECK(ng_group_call(group, 1000 + seen->more--, result) == GRPC_NO_ERROR);
    }
    atomic_fetch_sub(&seen->inside, 1);
}

static void cleanup(ng_group_t *group, void **arguments, void *data)
{
    struct seen *seen = data;
    CHECK(group != NULL && ++seen->cleaned == seen->consumed);
    free(arguments[1]);
}

static void call_many(ng_group_t *group, int from, int to)
{
    for (int n = from; n < to; n++)
        CHECK(ng_group_call(group, n, malloc(sizeof(long))) == GRPC_NO_ERROR);
}

/* 30 calls, and three of callbacks. */
static void many(bool with_thread)
{
    struct seen seen = {.more = 3};
    ng_group_t group;
    CHECK(ng_group_init(&group, "t/twice", cleanup, consume, &seen) == GRPC_NO_ERROR);
    CHECK(ng_group_set_property(&group, NG_GROUP_USE_PTHREAD, with_thread) == GRPC_NO_ERROR);
    call_many(&group, 0, 30);
    CHECK(ng_group_wait_done(&group) == GRPC_NO_ERROR);
    CHECK(seen.consumed == 33 && seen.cleaned == 33 && seen.failed == 0);
    CHECK(seen.sum == 29 * 30 + 2 * (1001 + 1002 + 1003));
    CHECK(!pthread_equal(seen.thread, pthread_self()) == with_thread);
    CHECK(ng_group_wait_done(&group) == GRPC_NO_ERROR);
    CHECK(ng_group_fin(&group) == GRPC_NO_ERROR);
    CHECK_ERROR(ng_group_call(&group, 1, NULL), GRPC_INVALID_FUNCTION_HANDLE, "not initialized");
}

static void stacks(void)
{
    struct seen seen = {0};
    ng_group_t group;
    int numbers[4] = {1, 2, 3, 4};
    CHECK(ng_group_init(&group, "t/twice", cleanup, consume, &seen) == GRPC_NO_ERROR);
    grpc_arg_stack_t *stack = grpc_arg_stack_new(2);
    CHECK_ERROR(ng_group_call_arg_stack(&group, stack), GRPC_OTHER_ERROR_CODE, "is off");
    CHECK(ng_group_set_property(&group, NG_GROUP_USE_ARG_STACK, 1) == GRPC_NO_ERROR);
    CHECK_ERROR(ng_group_call(&group, 1, NULL), GRPC_OTHER_ERROR_CODE, "is on");
    CHECK_ERROR(ng_group_call_arg_stack(&group, stack), GRPC_OTHER_ERROR_CODE, "number of arguments");
    grpc_arg_stack_destruct(stack);
    for (int i = 0; i < 4; i++) {
        stack = grpc_arg_stack_new(2);
        grpc_arg_stack_push_arg(stack, &numbers[i]);
        grpc_arg_stack_push_arg(stack, malloc(sizeof(long)));
        CHECK(ng_group_call_arg_stack(&group, stack) == GRPC_NO_ERROR);
    }
    CHECK(ng_group_wait_done(&group) == GRPC_NO_ERROR && seen.sum == 20 && seen.cleaned == 4);
    CHECK_ERROR(ng_group_set_property(&group, 99, 1), GRPC_OTHER_ERROR_CODE, "no property");
    CHECK(ng_group_fin(&group) == GRPC_NO_ERROR);
}

/* The most that runs at a time, by what is there. */
static void throttled(void)
{
    struct seen seen = {0};
    ng_group_t group;
    CHECK(grpc_servers_np() == 2);
    CHECK(ng_group_init(&group, "t/wait", cleanup, consume, &seen) == GRPC_NO_ERROR);
    CHECK(ng_group_set_property(&group, NG_GROUP_SERVERS, 1) == GRPC_NO_ERROR);
    for (int i = 0; i < 3; i++) {
        CHECK(ng_group_call(&group, 1, malloc(sizeof(long))) == GRPC_NO_ERROR);
        CHECK(seen.consumed == i);
    }
    /* Cancelled ones are told of like others. */
    CHECK(ng_group_set_property(&group, NG_GROUP_SERVERS, 0) == GRPC_NO_ERROR);
    CHECK(ng_group_call(&group, 600, malloc(sizeof(long))) == GRPC_NO_ERROR);
    CHECK(ng_group_cancel_np(&group) == GRPC_NO_ERROR);
    CHECK_ERROR(ng_group_wait_done(&group), GRPC_SESSION_FAILED, "has failed");
    CHECK(seen.consumed == 4 && seen.cleaned == 4 && seen.failed >= 1 && seen.failed <= 2);
    CHECK(ng_group_wait_done(&group) == GRPC_NO_ERROR);
    /* And so is what fin cancels. */
    CHECK(ng_group_call(&group, 600, malloc(sizeof(long))) == GRPC_NO_ERROR);
    CHECK(ng_group_fin(&group) == GRPC_NO_ERROR && seen.cleaned == 5 && seen.error == GRPC_CANCELED_NP);
}

static void free_last(ng_group_t *group, void **arguments, void *data)
{
    CHECK(group != NULL && data != NULL);
    free(arguments[2]);
}

static void take_tries(ng_group_t *group, grpc_sessionid_t call, grpc_error_t error, void **arguments, void *data)
{
    CHECK(group != NULL && call > 0);
    *(int *)data = error == GRPC_NO_ERROR ? *(int *)arguments[2] : -1;
}

static void reinvoked(const char *folder)
{
    ng_group_t group;
    char file[4096];
    int tries = 0;
    CHECK(ng_group_init(&group, "t/often", free_last, take_tries, &tries) == GRPC_NO_ERROR);
    snprintf(file, sizeof file, "%s/tries.1", folder);
    CHECK(ng_group_call(&group, file, 3, malloc(sizeof(int))) == GRPC_NO_ERROR);
    CHECK_ERROR(ng_group_wait_done(&group), GRPC_SESSION_FAILED, "has failed");
    CHECK(tries == -1);
    CHECK(ng_group_set_property(&group, NG_GROUP_AUTO_REINVOKE, 2) == GRPC_NO_ERROR);
    snprintf(file, sizeof file, "%s/tries.2", folder);
    CHECK(ng_group_call(&group, file, 3, malloc(sizeof(int))) == GRPC_NO_ERROR);
    CHECK(ng_group_wait_done(&group) == GRPC_NO_ERROR && tries == 3);
    CHECK(ng_group_fin(&group) == GRPC_NO_ERROR);
}

/* A group that outlives the library still gives back what it was given. */
static void outlived(char *configuration, bool with_thread)
{
    struct seen seen = {0};
    ng_group_t group;
    CHECK(ng_group_init(&group, "t/wait", cleanup, consume, &seen) == GRPC_NO_ERROR);
    CHECK(ng_group_set_property(&group, NG_GROUP_USE_PTHREAD, with_thread) == GRPC_NO_ERROR);
    for (int i = 0; i < 2; i++)
        CHECK(ng_group_call(&group, 600, malloc(sizeof(long))) == GRPC_NO_ERROR);
    seen.is_over = true;
    CHECK(grpc_finalize() == GRPC_NO_ERROR);
    CHECK(ng_group_fin(&group) == GRPC_NO_ERROR && seen.cleaned == 2 && seen.failed == 2);
    CHECK(grpc_initialize(configuration) == GRPC_NO_ERROR);
}

int main(int argc, char **argv)
{
    ng_group_t group;
    CHECK(argc == 3);
    CHECK_ERROR(ng_group_init(&group, "t/twice", NULL, NULL, NULL), GRPC_NOT_INITIALIZED, "grpc_initialize");
    CHECK(grpc_initialize(argv[1]) == GRPC_NO_ERROR);
    CHECK_ERROR(ng_group_init(&group, "t/missing", NULL, NULL, NULL), GRPC_FUNCTION_NOT_FOUND, "t/missing");
    many(false);
    many(true);
    stacks();
    throttled();
    reinvoked(argv[2]);
    outlived(argv[1], false);
    outlived(argv[1], true);
    CHECK(grpc_finalize() == GRPC_NO_ERROR);
    puts("right");
    return 0;
}
