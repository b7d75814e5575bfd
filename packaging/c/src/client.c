#include "client.h"

#include <stdlib.h>
#include <unistd.h>

struct client client = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

/* In a child the lock may be that of a thread which is not there. */
static bool is_a_child(void)
{
    return client.owner != 0 && client.owner != getpid();
}

static grpc_error_t refuse_child(void)
{
    return fail(GRPC_NOT_INITIALIZED, "a child of the process that called grpc_initialize can't use its calls");
}

bool enter(void)
{
    if (is_a_child()) {
        refuse_child();
        return false;
    }
    pthread_mutex_lock(&client.lock);
    if (!client.is_up) {
        pthread_mutex_unlock(&client.lock);
        fail(GRPC_NOT_INITIALIZED, "grpc_initialize was not called");
        return false;
    }
    client.users++;
    return true;
}

grpc_error_t leave(grpc_error_t error)
{
    if (--client.users == 0)
        pthread_cond_broadcast(&client.changed);
    pthread_mutex_unlock(&client.lock);
    return error == GRPC_NO_ERROR ? forget_error() : error;
}

struct timespec later(long milliseconds)
{
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    time.tv_sec += milliseconds / 1000;
    time.tv_nsec += milliseconds % 1000 * 1000000;
    if (time.tv_nsec >= 1000000000) {
        time.tv_sec++;
        time.tv_nsec -= 1000000000;
    }
    return time;
}

unsigned grpc_servers_np(void)
{
    pthread_mutex_lock(&client.lock);
    unsigned servers = client.servers;
    pthread_mutex_unlock(&client.lock);
    return servers;
}

/* Initializes and finalizes: one thread at a time. */
static pthread_mutex_t ends = PTHREAD_MUTEX_INITIALIZER;

static grpc_error_t initialize(const char *path)
{
    if (client.is_up)
        return fail(GRPC_ALREADY_INITIALIZED, "grpc_initialize was called before");
    grpc_error_t error = read_config(path, &client.config);
    if (error == GRPC_NO_ERROR)
        error = open_farm();
    if (error == GRPC_NO_ERROR)
        error = start_watching();
    if (error != GRPC_NO_ERROR) {
        close_farm();
        free_config(&client.config);
        return error;
    }
    pthread_mutex_lock(&client.lock);
    client.is_up = true;
    client.closes = false;
    client.owner = getpid();
    pthread_mutex_unlock(&client.lock);
    return forget_error();
}

grpc_error_t grpc_initialize(char *config_file)
{
    if (is_a_child())
        return refuse_child();
    pthread_mutex_lock(&ends);
    grpc_error_t error = initialize(config_file);
    pthread_mutex_unlock(&ends);
    return error;
}

static grpc_error_t finalize(void)
{
    if (!client.is_up)
        return fail(GRPC_NOT_INITIALIZED, "grpc_initialize was not called");
    pthread_mutex_lock(&client.lock);
    client.closes = true;
    pthread_mutex_unlock(&client.lock);
    grpc_cancel_all();
    pthread_mutex_lock(&client.lock);
    client.is_up = false;
    pthread_cond_broadcast(&client.changed);
    while (client.users > 0)
        pthread_cond_wait(&client.changed, &client.lock);
    pthread_mutex_unlock(&client.lock);
    stop_watching();
    pthread_mutex_lock(&client.lock);
    free_sessions();
    /* Handles that were not destructed are none from now on. */
    while (client.functions != NULL) {
        client.functions->references = 1;
        release(client.functions);
    }
    client.owner = 0;
    /* Threads of groups may have calls that are over by that. */
    pthread_cond_broadcast(&client.changed);
    pthread_mutex_unlock(&client.lock);
    close_farm();
    free_config(&client.config);
    return forget_error();
}

grpc_error_t grpc_finalize(void)
{
    if (is_a_child())
        return refuse_child();
    pthread_mutex_lock(&ends);
    grpc_error_t error = finalize();
    pthread_mutex_unlock(&ends);
    return error;
}
