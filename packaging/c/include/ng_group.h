/*
 * Task farming on top of GridRPC: many calls of one function, of which so many run at a time as the farm has servers.
 *
 *     ng_group_init(&group, "pi/pi_trial", cleanup, consume, data);
 *     for (...) ng_group_call(&group, seed, times, &count[seed]);
 *     ng_group_wait_done(&group);
 *     ng_group_fin(&group);
 *
 * A call of the group has ended once; then consume is called for it, and then cleanup. Callbacks run one at a time: in
 * a thread that is in ng_group_call, ng_group_call_arg_stack, ng_group_wait_done or ng_group_fin; with
 * NG_GROUP_USE_PTHREAD in a thread of the group's. A callback may call: such a call does not wait for a server.
 */
#ifndef CKPTD_NG_GROUP_H
#define CKPTD_NG_GROUP_H

#include <grpc.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ng_group {
    struct ckptd_group *hidden;
} ng_group_t;

typedef enum {
    /* Calls are made by ng_group_call_arg_stack alone, and each stack is the group's, which destructs it behind
       cleanup. */
    NG_GROUP_USE_ARG_STACK = 1,
    /* How often a call that has failed by itself is tried again [0]. */
    NG_GROUP_AUTO_REINVOKE = 2,
    /* Callbacks run in a thread of the group's. Once it is on, it stays. */
    NG_GROUP_USE_PTHREAD = 3,
    /* The most calls that have begun and not ended; 0: as many as the farm runs at a time. */
    NG_GROUP_SERVERS = 4
} ng_group_property_t;

/*
 * What is called when a call has ended. arguments: as they were given; what was no pointer is a pointer to a copy of
 * it. What comes out is there if error is GRPC_NO_ERROR.
 */
typedef void (*ng_group_consume_t)(ng_group_t *group, grpc_sessionid_t call, grpc_error_t error, void **arguments,
                                   void *data);
/* What is called when the arguments are not needed any more. */
typedef void (*ng_group_cleanup_t)(ng_group_t *group, void **arguments, void *data);

/* Callbacks may be NULL. */
grpc_error_t ng_group_init(ng_group_t *group, char *function, ng_group_cleanup_t cleanup, ng_group_consume_t consume,
                           void *data);
grpc_error_t ng_group_set_property(ng_group_t *group, ng_group_property_t property, int value);

/* Calls the function; waits first while all servers are taken. If it fails, no callback is called for the call. */
grpc_error_t ng_group_call(ng_group_t *group, ...);
grpc_error_t ng_group_call_arg_stack(ng_group_t *group, grpc_arg_stack_t *arguments);

/* Waits until all calls have ended, those of callbacks as well. GRPC_SESSION_FAILED: one has failed since the last
   time. */
grpc_error_t ng_group_wait_done(ng_group_t *group);
/* Cancels all calls; their error is GRPC_CANCELED_NP. For one call there is grpc_cancel(). */
grpc_error_t ng_group_cancel_np(ng_group_t *group);
/* Cancels what has not ended, calls the callbacks, and frees the group. */
grpc_error_t ng_group_fin(ng_group_t *group);

#ifdef __cplusplus
}
#endif

#endif
