/* Many calls of one function. The client's lock is held wherever nothing else is said. */
#ifndef CKPTD_GROUP_H
#define CKPTD_GROUP_H

#include <ng_group.h>

#include "client.h"

/* A call of a group whose callbacks were not called. */
struct group_call {
    struct group_call *next;
    struct session *session;
    /* The group's, with NG_GROUP_USE_ARG_STACK. */
    grpc_arg_stack_t *stack;
};

struct ckptd_group {
    ng_group_t *self;
    grpc_function_handle_t handle;
    ng_group_cleanup_t cleanup;
    ng_group_consume_t consume;
    void *data;
    /* The oldest one first. */
    struct group_call *calls;
    unsigned submitting;
    bool uses_stacks;
    int retries, servers;
    /* A thread is in a callback, and which one. */
    bool is_calling_back;
    pthread_t caller;
    bool has_thread, stops;
    pthread_t thread;
    bool has_failed;
};

/* Whether this thread is in a callback of the group. */
bool is_inside(const struct ckptd_group *group);
/* How many of its calls have begun and not ended. */
unsigned begun(const struct ckptd_group *group);
/* Calls the callbacks of one call that has ended, if there is one; the lock is given back meanwhile. */
bool finish_one(struct ckptd_group *group);
grpc_error_t start_thread(struct ckptd_group *group);
/* Without the lock. */
void stop_thread(struct ckptd_group *group);

#endif
