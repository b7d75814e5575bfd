/*
 * GridRPC, the programming interface of OGF's GFD-R.52, with calls that are tasks of a ckptd farm.
 *
 * What ends in _np is not in that document. All functions may be called by several threads at a time. They return an
 * error code unless said otherwise; grpc_last_error_message_np() tells more of what this thread's last one has
 * returned.
 */
#ifndef CKPTD_GRPC_H
#define CKPTD_GRPC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int grpc_error_t;

enum {
    GRPC_NO_ERROR = 0,
    GRPC_NOT_INITIALIZED = 1,
    GRPC_ALREADY_INITIALIZED = 2,
    GRPC_CONFIGFILE_NOT_FOUND = 3,
    GRPC_CONFIGFILE_ERROR = 4,
    GRPC_SERVER_NOT_FOUND = 5,
    GRPC_FUNCTION_NOT_FOUND = 6,
    GRPC_INVALID_FUNCTION_HANDLE = 7,
    GRPC_INVALID_SESSION_ID = 8,
    GRPC_RPC_REFUSED = 9,
    GRPC_COMMUNICATION_FAILED = 10,
    GRPC_SESSION_FAILED = 11,
    GRPC_NOT_COMPLETED = 12,
    GRPC_NONE_COMPLETED = 13,
    /* The call took longer than "timeout" in the configuration file allows. */
    GRPC_TIMEOUT_NP = 16,
    GRPC_CANCELED_NP = 17,
    GRPC_OTHER_ERROR_CODE = 18,
    GRPC_UNKNOWN_ERROR_CODE = 19,
    GRPC_LAST_ERROR_CODE = 20
};

/* A call that runs, or has ended. */
typedef int grpc_sessionid_t;
#define GRPC_SESSIONID_VOID (-1)

/* A function. It must not be moved or copied between init and destruct. */
typedef struct grpc_function_handle {
    struct ckptd_function *hidden;
} grpc_function_handle_t;

typedef struct grpc_arg_stack grpc_arg_stack_t;

/* Reads a configuration file (NULL: everything as usual), and starts the farm unless it runs. */
grpc_error_t grpc_initialize(char *config_file);
/* Cancels what has not ended. */
grpc_error_t grpc_finalize(void);

/* The function of that name, such as "pi/pi_trial". */
grpc_error_t grpc_function_handle_default(grpc_function_handle_t *handle, char *function);
/* The same on a machine: "localhost" or this one's name, since a farm is on one machine. */
grpc_error_t grpc_function_handle_init(grpc_function_handle_t *handle, char *server, char *function);
/* Calls that have begun go on. */
grpc_error_t grpc_function_handle_destruct(grpc_function_handle_t *handle);
grpc_error_t grpc_get_handle(grpc_function_handle_t **handle, grpc_sessionid_t session);

/*
 * Calls. Arguments that go in are copied before one of these returns; those that come out are written once the call is
 * waited for, or probed with GRPC_NO_ERROR, and have to be there until then.
 */
grpc_error_t grpc_call(grpc_function_handle_t *handle, ...);
grpc_error_t grpc_call_async(grpc_function_handle_t *handle, grpc_sessionid_t *session, ...);
grpc_error_t grpc_call_argstack(grpc_function_handle_t *handle, grpc_arg_stack_t *arguments);
grpc_error_t grpc_call_argstack_async(grpc_function_handle_t *handle, grpc_sessionid_t *session,
                                      grpc_arg_stack_t *arguments);
/* The name that Ninf-G has for grpc_call_argstack. */
grpc_error_t grpc_call_arg_stack(grpc_function_handle_t *handle, grpc_arg_stack_t *arguments);

/*
 * A stack of arguments, the first of which is pushed first. What is no pointer in grpc_call, such as an int, is pushed
 * as a pointer to it. _new: NULL without memory; _push_arg, _destruct: 0, or -1 where there is no room, or no stack;
 * _pop_arg: NULL if empty.
 */
grpc_arg_stack_t *grpc_arg_stack_new(int most);
int grpc_arg_stack_push_arg(grpc_arg_stack_t *stack, void *argument);
void *grpc_arg_stack_pop_arg(grpc_arg_stack_t *stack);
int grpc_arg_stack_destruct(grpc_arg_stack_t *stack);

/* Waiting. GRPC_SESSION_FAILED: the call, or one of them, has failed, and grpc_get_error() tells how. */
grpc_error_t grpc_wait(grpc_sessionid_t session);
grpc_error_t grpc_wait_and(grpc_sessionid_t *sessions, size_t count);
grpc_error_t grpc_wait_or(grpc_sessionid_t *sessions, size_t count, grpc_sessionid_t *ended);
/* Of all calls that were not waited for and are of no group. Without any, _any has GRPC_SESSIONID_VOID for its
   session. */
grpc_error_t grpc_wait_all(void);
grpc_error_t grpc_wait_any(grpc_sessionid_t *ended);

/* GRPC_NOT_COMPLETED: it runs. */
grpc_error_t grpc_probe(grpc_sessionid_t session);
/* GRPC_NONE_COMPLETED: all of them run. */
grpc_error_t grpc_probe_or(grpc_sessionid_t *sessions, size_t count, grpc_sessionid_t *ended);
/* Returns once it has ended; it may have ended before by itself. */
grpc_error_t grpc_cancel(grpc_sessionid_t session);
grpc_error_t grpc_cancel_all(void);

/* How a call has ended; GRPC_NOT_COMPLETED: it runs. */
grpc_error_t grpc_get_error(grpc_sessionid_t session);
/* A call that has failed and was not told of by this before; GRPC_SESSIONID_VOID: there is none. */
grpc_error_t grpc_get_failed_sessionid(grpc_sessionid_t *session);
/* The code's name; it stays. */
char *grpc_error_string(grpc_error_t error);
grpc_error_t grpc_perror_np(char *prefix);
grpc_error_t grpc_last_error_get_np(void);

/* What the last function that failed in this thread has to say; until the next one. */
const char *grpc_last_error_message_np(void);
/* Why a call has failed; "" if it has not. */
grpc_error_t grpc_session_message_np(grpc_sessionid_t session, char *text, size_t size);
/* Writes to a file descriptor what the call's function has written to its standard output and error. */
grpc_error_t grpc_session_log_np(grpc_sessionid_t session, int descriptor);
/* The call's number in the farm, for 'ckptd farm status' and the like; 0: there is none. */
unsigned grpc_session_task_np(grpc_sessionid_t session);
/* How many calls the farm runs at a time, as far as is known: that may change. */
unsigned grpc_servers_np(void);

#ifdef __cplusplus
}
#endif

#endif
