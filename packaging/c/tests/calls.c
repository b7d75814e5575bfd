/* Calls of every kind, and all ways of waiting for them. CONFIGURATION */
#include "check.h"

static void types(void)
{
    grpc_function_handle_t all, nothing;
    double a[3][2] = {{1, 2}, {3, 4}, {5, 6}}, sum = 0;
    int b[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    char back[3][20] = {{0}};
    CHECK(grpc_function_handle_init(&all, "localhost", "t/all") == GRPC_NO_ERROR);
    CHECK(grpc_call(&all, 'a', 300, -5, 1L << 40, 0.5, 0.25, "it's \"so\"\n", 3, a, b, back, &sum) == GRPC_NO_ERROR);
    CHECK(sum == 'a' + 300 - 5 + 1099511627776.0 + 0.5 + 0.25 + 2 + 12 + 30);
    for (int i = 0; i < 9; i++)
        CHECK(b[i] == -1 - i);
    CHECK(strcmp(back[2], "it's \"so\"\n 2") == 0);
    /* Nothing of an array. */
    CHECK(grpc_call(&all, 'a', 0, 0, 0L, 0.0, 0.0, "", 0, a, b, back, &sum) == GRPC_NO_ERROR);
    CHECK(sum == 'a' && b[0] == -1);
    CHECK(grpc_function_handle_default(&nothing, "t/nothing") == GRPC_NO_ERROR);
    CHECK(grpc_call(&nothing) == GRPC_NO_ERROR);
    CHECK(grpc_function_handle_destruct(&nothing) == GRPC_NO_ERROR);
    CHECK_ERROR(grpc_call(&nothing), GRPC_INVALID_FUNCTION_HANDLE, "not initialized");
    CHECK(grpc_function_handle_destruct(&all) == GRPC_NO_ERROR);
}

static void stacks(void)
{
    grpc_function_handle_t twice;
    grpc_arg_stack_t *stack = grpc_arg_stack_new(2);
    grpc_sessionid_t id;
    int n = 21, other;
    long result = 0;
    CHECK(grpc_function_handle_default(&twice, "t/twice") == GRPC_NO_ERROR);
    CHECK(grpc_arg_stack_push_arg(stack, &other) == 0 && grpc_arg_stack_pop_arg(stack) == &other);
    CHECK(grpc_arg_stack_pop_arg(stack) == NULL);
    CHECK(grpc_arg_stack_push_arg(stack, &n) == 0);
    CHECK_ERROR(grpc_call_argstack(&twice, stack), GRPC_OTHER_ERROR_CODE, "another number of arguments");
    CHECK(grpc_arg_stack_push_arg(stack, &result) == 0 && grpc_arg_stack_push_arg(stack, &n) == -1);
    CHECK(grpc_call_argstack(&twice, stack) == GRPC_NO_ERROR && result == 42);
    CHECK(grpc_call_argstack_async(&twice, &id, stack) == GRPC_NO_ERROR);
    /* It was copied. */
    n = 1;
    result = 0;
    CHECK(grpc_wait(id) == GRPC_NO_ERROR && result == 42);
    CHECK(grpc_arg_stack_destruct(stack) == 0 && grpc_arg_stack_destruct(NULL) == -1);
    CHECK(grpc_function_handle_destruct(&twice) == GRPC_NO_ERROR);
}

static void waits(void)
{
    grpc_function_handle_t twice, wait, *found;
    grpc_sessionid_t ids[5], slow, id;
    long results[5], pid = 0;
    CHECK(grpc_function_handle_default(&twice, "t/twice") == GRPC_NO_ERROR);
    CHECK(grpc_function_handle_default(&wait, "t/wait") == GRPC_NO_ERROR);
    CHECK(grpc_call_async(&wait, &slow, 600, &pid) == GRPC_NO_ERROR);
    CHECK_ERROR(grpc_probe(slow), GRPC_NOT_COMPLETED, "runs");
    CHECK(grpc_get_error(slow) == GRPC_NOT_COMPLETED);
    CHECK(grpc_get_handle(&found, slow) == GRPC_NO_ERROR && found == &wait);
    CHECK_ERROR(grpc_probe_or(&slow, 1, &id), GRPC_NONE_COMPLETED, "run");
    for (int i = 0; i < 5; i++)
        CHECK(grpc_call_async(&twice, &ids[i], i, &results[i]) == GRPC_NO_ERROR);
    CHECK(grpc_wait_or(ids, 5, &id) == GRPC_NO_ERROR && id >= ids[0] && id <= ids[4]);
    CHECK(grpc_wait_and(ids, 3) == GRPC_NO_ERROR);
    CHECK(grpc_probe(ids[2]) == GRPC_NO_ERROR && grpc_wait(ids[2]) == GRPC_NO_ERROR);
    for (int i = 0; i < 3; i++)
        CHECK(results[i] == 2 * i);
    grpc_sessionid_t first;
    CHECK(grpc_wait_any(&first) == GRPC_NO_ERROR && first > GRPC_SESSIONID_VOID);
    CHECK(grpc_cancel(slow) == GRPC_NO_ERROR && grpc_cancel(slow) == GRPC_NO_ERROR);
    CHECK_ERROR(grpc_wait_all(), GRPC_SESSION_FAILED, "cancelled");
    CHECK(grpc_get_error(slow) == GRPC_CANCELED_NP && grpc_get_error(ids[4]) == GRPC_NO_ERROR);
    CHECK(grpc_get_failed_sessionid(&id) == GRPC_NO_ERROR && id == slow);
    CHECK(grpc_get_failed_sessionid(&id) == GRPC_NO_ERROR && id == GRPC_SESSIONID_VOID);
    for (int i = 3; i < 5; i++)
        CHECK(results[i] == 2 * i);
    CHECK(grpc_wait_all() == GRPC_NO_ERROR);
    CHECK(grpc_wait_any(&id) == GRPC_NO_ERROR && id == GRPC_SESSIONID_VOID);
    CHECK(grpc_function_handle_destruct(&twice) == GRPC_NO_ERROR);
    CHECK_ERROR(grpc_get_handle(&found, ids[0]), GRPC_INVALID_FUNCTION_HANDLE, "destructed");
    /* What runs goes on without its handle, and ends with the library. */
    CHECK(grpc_call_async(&wait, &slow, 600, &pid) == GRPC_NO_ERROR);
    CHECK(grpc_function_handle_destruct(&wait) == GRPC_NO_ERROR);
}

int main(int argc, char **argv)
{
    grpc_function_handle_t handle;
    CHECK(argc == 2);
    CHECK_ERROR(grpc_function_handle_default(&handle, "t/twice"), GRPC_NOT_INITIALIZED, "grpc_initialize");
    CHECK(grpc_initialize(argv[1]) == GRPC_NO_ERROR);
    CHECK_ERROR(grpc_initialize(argv[1]), GRPC_ALREADY_INITIALIZED, "before");
    types();
    stacks();
    waits();
    CHECK(grpc_finalize() == GRPC_NO_ERROR);
    CHECK_ERROR(grpc_wait_all(), GRPC_NOT_INITIALIZED, "grpc_initialize");
    /* And again. */
    CHECK(grpc_initialize(argv[1]) == GRPC_NO_ERROR);
    types();
    CHECK(grpc_finalize() == GRPC_NO_ERROR);
    puts("right");
    return 0;
}
