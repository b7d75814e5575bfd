/* Eight threads that do everything at a time, with handles, groups and sessions of their own and in common.
   CONFIGURATION */
#include <ng_group.h>
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

#define THREADS 8
#define ROUNDS 4

static grpc_function_handle_t shared;
static ng_group_t common;
static atomic_long sum;
static atomic_int consumed, cleaned;

static void consume(ng_group_t *group, grpc_sessionid_t call, grpc_error_t error, void **arguments, void *data)
{
    CHECK(group != NULL && call > 0 && data == NULL);
    atomic_fetch_add(&consumed, 1);
    if (error == GRPC_NO_ERROR)
        atomic_fetch_add(&sum, *(long *)arguments[1]);
}

static void cleanup(ng_group_t *group, void **arguments, void *data)
{
    CHECK(group != NULL && data == NULL);
    atomic_fetch_add(&cleaned, 1);
    free(arguments[1]);
}

static void *work(void *number)
{
    int n = *(int *)number;
    grpc_function_handle_t own;
    grpc_sessionid_t ids[2], id;
    long results[2], result;
    for (int i = 0; i < ROUNDS; i++) {
        CHECK(grpc_function_handle_default(&own, "t/twice") == GRPC_NO_ERROR);
        CHECK(grpc_call_async(&own, &ids[0], n, &results[0]) == GRPC_NO_ERROR);
        CHECK(grpc_call_async(&shared, &ids[1], n + 1, &results[1]) == GRPC_NO_ERROR);
        CHECK(grpc_function_handle_destruct(&own) == GRPC_NO_ERROR);
        CHECK(ng_group_call(&common, n, malloc(sizeof(long))) == GRPC_NO_ERROR);
        grpc_probe(ids[1]);
        CHECK(grpc_wait_or(ids, 2, &id) == GRPC_NO_ERROR && (id == ids[0] || id == ids[1]));
        if (n % 2 == 0)
            grpc_cancel(ids[1]);
        grpc_error_t error = grpc_wait_and(ids, 2);
        CHECK(error == GRPC_NO_ERROR || (n % 2 == 0 && grpc_get_error(ids[1]) == GRPC_CANCELED_NP));
        CHECK(results[0] == 2 * n && (error != GRPC_NO_ERROR || results[1] == 2 * n + 2));
        CHECK(grpc_call(&shared, 5, &result) == GRPC_NO_ERROR && result == 10);
        CHECK_ERROR(grpc_wait(-n - 1), GRPC_INVALID_SESSION_ID, "no session");
    }
    CHECK(ng_group_wait_done(&common) == GRPC_NO_ERROR);
    return number;
}

static void run(char *configuration, int with_thread)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    long expected = 0;
    atomic_store(&sum, 0);
    atomic_store(&consumed, 0);
    atomic_store(&cleaned, 0);
    CHECK(grpc_initialize(configuration) == GRPC_NO_ERROR);
    CHECK(grpc_function_handle_default(&shared, "t/twice") == GRPC_NO_ERROR);
    CHECK(ng_group_init(&common, "t/twice", cleanup, consume, NULL) == GRPC_NO_ERROR);
    CHECK(ng_group_set_property(&common, NG_GROUP_USE_PTHREAD, with_thread) == GRPC_NO_ERROR);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = 100 * i;
        expected += 2L * numbers[i] * ROUNDS;
        CHECK(pthread_create(&threads[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(ng_group_fin(&common) == GRPC_NO_ERROR);
    CHECK(atomic_load(&sum) == expected && atomic_load(&consumed) == THREADS * ROUNDS);
    CHECK(atomic_load(&cleaned) == THREADS * ROUNDS);
    CHECK(grpc_finalize() == GRPC_NO_ERROR);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    run(argv[1], 0);
    run(argv[1], 1);
    puts("right");
    return 0;
}
