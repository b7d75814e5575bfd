#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"
#include "text.h"

/* How often a call is submitted whose submission is killed. */
#define TRIES 5

/* Writes the arguments down, in a folder of the call's own. */
static grpc_error_t write_arguments(struct session *session)
{
    struct message message = {NULL, 0};
    if (getrandom(session->key, sizeof session->key, 0) != (ssize_t)sizeof session->key)
        return fail(GRPC_OTHER_ERROR_CODE, "there are no random numbers");
    const char *wrong = message_of(&session->function->description, ARGUMENTS, session->key, session->values.at, &message);
    /* What comes back has to have room, and a size. */
    for (size_t i = 0, count; wrong == NULL && i < session->function->description.count; i++)
        wrong = session->values.at[i] == NULL ? "an argument is NULL"
                                              : count_of(&session->function->description, i, session->values.at, &count);
    grpc_error_t error = GRPC_NO_ERROR;
    if (wrong != NULL)
        error = fail(GRPC_OTHER_ERROR_CODE, "failed to call %s: %s", session->function->description.name, wrong);
    else if (mkdir(session->folder, 0700) != 0 ||
             !write_whole(session->folder, "arguments", message.bytes, message.length))
        error = fail(GRPC_COMMUNICATION_FAILED, "failed to write arguments in %s: %s", session->folder, strerror(errno));
    free(message.bytes);
    return error;
}

/* The number that 'ckptd farm submit' has printed: from then on the task is run, whatever becomes of that process.
   0: none. */
static unsigned number_in(const char *said)
{
    for (const char *line = said; line != NULL && *line != '\0';) {
        char *end;
        unsigned long number = strtoul(line, &end, 10);
        if (end != line && *end == '\n' && number < 1000000)
            return (unsigned)number;
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return 0;
}

/* Submits the call's task; its number. */
static grpc_error_t submit(const struct session *session, int retries, unsigned *task)
{
    const struct description *description = &session->function->description;
    char number[16];
    snprintf(number, sizeof number, "%d", retries);
    const char *words[16] = {"submit", "--farm", client.config.farm, "--retries", number};
    size_t count = 5;
    if (client.config.timeout != NULL) {
        words[count++] = "--timeout";
        words[count++] = client.config.timeout;
    }
    words[count++] = "--";
    words[count++] = description->program;
    words[count++] = description->name;
    words[count++] = session->folder;
    grpc_error_t error = GRPC_RPC_REFUSED;
    for (int tries = 0; tries < TRIES && error == GRPC_RPC_REFUSED; tries++) {
        char *said;
        int status = run_ckptd(words, &said, -1);
        *task = number_in(said);
        error = *task != 0 ? GRPC_NO_ERROR
                           : fail(GRPC_RPC_REFUSED, "failed to submit a call of %s: %s", description->name,
                                  last_said(said));
        free(said);
        /* One that was killed may have submitted it: two tasks of a call write the same results. */
        if (status <= 128)
            break;
    }
    return error;
}

/* The task has a number now: it may have ended already. */
static void has_begun(struct session *session, unsigned task)
{
    session->task = task;
    session->state = RUNNING;
    client.running++;
    for (size_t i = 0; i < client.early_count; i++) {
        if (client.early[i].task == task)
            end_session(session, client.early[i].error, client.early[i].why);
    }
    pthread_cond_broadcast(&client.changed);
}

static void unlink_session(struct session *session)
{
    struct session **at = &client.sessions;
    while (*at != NULL && *at != session)
        at = &(*at)->next;
    if (*at != NULL)
        *at = session->next;
}

grpc_error_t begin_call(grpc_function_handle_t *handle, const struct values *values, int retries, bool is_grouped,
                        struct session **begun)
{
    if (client.closes)
        return fail(GRPC_NOT_INITIALIZED, "grpc_finalize was called meanwhile");
    struct session *session = calloc(1, sizeof *session);
    char *folder = text_of("%s/%lu", client.farm.calls, ++client.calls);
    if (session == NULL || folder == NULL || client.last_id == INT32_MAX) {
        free(session);
        free(folder);
        return fail(GRPC_OTHER_ERROR_CODE, "there is no room for another call");
    }
    *session = (struct session){.handle = handle, .function = handle->hidden, .is_grouped = is_grouped, .folder = folder};
    session->values = *values;
    for (size_t i = 0; i < handle->hidden->description.count; i++) {
        if (is_scalar(&handle->hidden->description.arguments[i]))
            session->values.at[i] = &session->values.scalars[i];
    }
    session->function->references++;
    session->next = client.sessions;
    client.sessions = session;
    client.starting++;
    pthread_mutex_unlock(&client.lock);
    unsigned task = 0;
    grpc_error_t error = write_arguments(session);
    if (error == GRPC_NO_ERROR)
        error = submit(session, retries, &task);
    if (error != GRPC_NO_ERROR)
        remove_folder(folder);
    pthread_mutex_lock(&client.lock);
    if (error == GRPC_NO_ERROR)
        has_begun(session, task);
    if (--client.starting == 0)
        client.early_count = 0;
    if (error == GRPC_NO_ERROR) {
        session->id = ++client.last_id;
        forget_old_sessions();
        *begun = session;
        return GRPC_NO_ERROR;
    }
    unlink_session(session);
    release(session->function);
    free(folder);
    free(session);
    return error;
}

static grpc_error_t invalid(void)
{
    return fail(GRPC_INVALID_FUNCTION_HANDLE, "the handle was not initialized");
}

/* Calls and waits. */
static grpc_error_t call(grpc_function_handle_t *handle, const struct values *values)
{
    struct session *session;
    grpc_error_t error = begin_call(handle, values, 0, true, &session);
    if (error != GRPC_NO_ERROR)
        return error;
    if (!complete(session))
        return fail(GRPC_NOT_INITIALIZED, "grpc_finalize was called meanwhile");
    session->is_waited_for = session->is_told_of = true;
    return session->error == GRPC_NO_ERROR ? GRPC_NO_ERROR : fail(session->error, "%s", session->message);
}

static grpc_error_t call_async(grpc_function_handle_t *handle, const struct values *values, grpc_sessionid_t *id)
{
    struct session *session;
    if (id == NULL)
        return fail(GRPC_INVALID_SESSION_ID, "there is no room for the session's number");
    grpc_error_t error = begin_call(handle, values, 0, false, &session);
    *id = error == GRPC_NO_ERROR ? session->id : GRPC_SESSIONID_VOID;
    return error;
}

grpc_error_t grpc_call(grpc_function_handle_t *handle, ...)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    struct ckptd_function *function = function_of(handle);
    if (function == NULL)
        return leave(invalid());
    struct values values;
    va_list list;
    va_start(list, handle);
    values_of_list(&function->description, &values, list);
    va_end(list);
    return leave(call(handle, &values));
}

grpc_error_t grpc_call_async(grpc_function_handle_t *handle, grpc_sessionid_t *session, ...)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    struct ckptd_function *function = function_of(handle);
    if (function == NULL)
        return leave(invalid());
    struct values values;
    va_list list;
    va_start(list, session);
    values_of_list(&function->description, &values, list);
    va_end(list);
    return leave(call_async(handle, &values, session));
}

/* Takes a stack's arguments. */
static grpc_error_t unstack(const grpc_function_handle_t *handle, const grpc_arg_stack_t *stack, struct values *values)
{
    struct ckptd_function *function = function_of(handle);
    if (function == NULL)
        return invalid();
    const char *wrong = values_of_stack(&function->description, values, stack);
    return wrong == NULL ? GRPC_NO_ERROR
                         : fail(GRPC_OTHER_ERROR_CODE, "failed to call %s: %s", function->description.name, wrong);
}

grpc_error_t grpc_call_argstack(grpc_function_handle_t *handle, grpc_arg_stack_t *arguments)
{
    struct values values;
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    grpc_error_t error = unstack(handle, arguments, &values);
    return leave(error == GRPC_NO_ERROR ? call(handle, &values) : error);
}

grpc_error_t grpc_call_arg_stack(grpc_function_handle_t *handle, grpc_arg_stack_t *arguments)
{
    return grpc_call_argstack(handle, arguments);
}

grpc_error_t grpc_call_argstack_async(grpc_function_handle_t *handle, grpc_sessionid_t *session,
                                      grpc_arg_stack_t *arguments)
{
    struct values values;
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    grpc_error_t error = unstack(handle, arguments, &values);
    return leave(error == GRPC_NO_ERROR ? call_async(handle, &values, session) : error);
}
