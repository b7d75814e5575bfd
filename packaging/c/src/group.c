#include <stdlib.h>
#include <string.h>

#include "group.h"

static grpc_error_t invalid(void)
{
    return fail(GRPC_INVALID_FUNCTION_HANDLE, "the group was not initialized");
}

static grpc_error_t finalized(void)
{
    return fail(GRPC_NOT_INITIALIZED, "grpc_finalize was called meanwhile");
}

grpc_error_t ng_group_init(ng_group_t *group, char *function, ng_group_cleanup_t cleanup, ng_group_consume_t consume,
                           void *data)
{
    if (group == NULL)
        return fail(GRPC_INVALID_FUNCTION_HANDLE, "the group is NULL");
    group->hidden = NULL;
    struct ckptd_group *hidden = calloc(1, sizeof *hidden);
    if (hidden == NULL)
        return fail(GRPC_OTHER_ERROR_CODE, "there is no memory");
    hidden->self = group;
    hidden->cleanup = cleanup;
    hidden->consume = consume;
    hidden->data = data;
    grpc_error_t error = grpc_function_handle_default(&hidden->handle, function);
    if (error != GRPC_NO_ERROR) {
        free(hidden);
        return error;
    }
    group->hidden = hidden;
    return GRPC_NO_ERROR;
}

static grpc_error_t set(struct ckptd_group *group, ng_group_property_t property, int value)
{
    switch (property) {
    case NG_GROUP_USE_ARG_STACK:
        group->uses_stacks = value != 0;
        return GRPC_NO_ERROR;
    case NG_GROUP_AUTO_REINVOKE:
        if (value < 0 || value > 1000)
            return fail(GRPC_OTHER_ERROR_CODE, "a call can be tried again up to 1000 times");
        group->retries = value;
        return GRPC_NO_ERROR;
    case NG_GROUP_USE_PTHREAD:
        return value != 0 ? start_thread(group) : GRPC_NO_ERROR;
    case NG_GROUP_SERVERS:
        if (value < 0)
            return fail(GRPC_OTHER_ERROR_CODE, "there can't be a negative number of servers");
        group->servers = value;
        pthread_cond_broadcast(&client.changed);
        return GRPC_NO_ERROR;
    }
    return fail(GRPC_OTHER_ERROR_CODE, "there is no property %d", (int)property);
}

grpc_error_t ng_group_set_property(ng_group_t *group, ng_group_property_t property, int value)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    if (group == NULL || group->hidden == NULL)
        return leave(invalid());
    return leave(set(group->hidden, property, value));
}

/* Waits until not all servers are taken, and calls callbacks meanwhile. */
static grpc_error_t wait_for_server(struct ckptd_group *group)
{
    while (!is_inside(group)) {
        if (!client.is_up)
            return finalized();
        if (!group->has_thread && finish_one(group))
            continue;
        unsigned most = group->servers > 0 ? (unsigned)group->servers : client.servers;
        if (begun(group) < most)
            break;
        pthread_cond_wait(&client.changed, &client.lock);
    }
    return GRPC_NO_ERROR;
}

static grpc_error_t begin(struct ckptd_group *group, const struct values *values, grpc_arg_stack_t *stack)
{
    struct group_call *call = calloc(1, sizeof *call);
    if (call == NULL)
        return fail(GRPC_OTHER_ERROR_CODE, "there is no memory");
    grpc_error_t error = wait_for_server(group);
    if (error == GRPC_NO_ERROR) {
        group->submitting++;
        error = begin_call(&group->handle, values, group->retries, true, &call->session);
        group->submitting--;
        pthread_cond_broadcast(&client.changed);
    }
    if (error != GRPC_NO_ERROR) {
        free(call);
        return error;
    }
    call->session->pins++;
    call->stack = stack;
    struct group_call **at = &group->calls;
    while (*at != NULL)
        at = &(*at)->next;
    *at = call;
    return GRPC_NO_ERROR;
}

/* The function of a group; NULL: it can't be called like that, and error says why. */
static struct ckptd_function *callable(ng_group_t *group, bool by_stack, grpc_error_t *error)
{
    if (group == NULL || group->hidden == NULL) {
        *error = invalid();
        return NULL;
    }
    if (group->hidden->uses_stacks != by_stack) {
        *error = fail(GRPC_OTHER_ERROR_CODE, "NG_GROUP_USE_ARG_STACK is %s: ng_group_call%s calls its function",
                      by_stack ? "off" : "on", by_stack ? "" : "_arg_stack");
        return NULL;
    }
    struct ckptd_function *function = function_of(&group->hidden->handle);
    *error = function == NULL ? invalid() : GRPC_NO_ERROR;
    return function;
}

grpc_error_t ng_group_call(ng_group_t *group, ...)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    grpc_error_t error;
    struct ckptd_function *function = callable(group, false, &error);
    if (function == NULL)
        return leave(error);
    struct values values;
    va_list list;
    va_start(list, group);
    values_of_list(&function->description, &values, list);
    va_end(list);
    return leave(begin(group->hidden, &values, NULL));
}

grpc_error_t ng_group_call_arg_stack(ng_group_t *group, grpc_arg_stack_t *arguments)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    grpc_error_t error;
    struct ckptd_function *function = callable(group, true, &error);
    if (function == NULL)
        return leave(error);
    struct values values;
    const char *wrong = values_of_stack(&function->description, &values, arguments);
    if (wrong != NULL)
        return leave(fail(GRPC_OTHER_ERROR_CODE, "failed to call %s: %s", function->description.name, wrong));
    return leave(begin(group->hidden, &values, arguments));
}

/* Waits until all calls have ended, and their callbacks. */
static void wait_until_done(struct ckptd_group *group)
{
    while (group->calls != NULL || group->submitting > 0 || group->is_calling_back) {
        if (!group->has_thread && finish_one(group))
            continue;
        if (!client.is_up)
            return;
        pthread_cond_wait(&client.changed, &client.lock);
    }
}

grpc_error_t ng_group_wait_done(ng_group_t *group)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    if (group == NULL || group->hidden == NULL)
        return leave(invalid());
    struct ckptd_group *hidden = group->hidden;
    if (is_inside(hidden))
        return leave(fail(GRPC_OTHER_ERROR_CODE, "a callback can't wait for its own end"));
    wait_until_done(hidden);
    if (!client.is_up)
        return leave(finalized());
    bool has_failed = hidden->has_failed;
    hidden->has_failed = false;
    return leave(has_failed ? fail(GRPC_SESSION_FAILED, "a call of the group has failed") : GRPC_NO_ERROR);
}

static grpc_error_t cancel(struct ckptd_group *group)
{
    grpc_error_t error = GRPC_NO_ERROR;
    /* The newest one first: what waits is not to begin in the place of what ends. Each time it is looked anew: calls end
       meanwhile. What could not be cancelled is not tried again. */
    for (grpc_sessionid_t last = client.last_id + 1; last > 0 && client.is_up;) {
        struct session *newest = NULL;
        for (struct group_call *call = group->calls; call != NULL; call = call->next) {
            if (call->session->state == RUNNING && call->session->id < last)
                newest = call->session;
        }
        if (newest == NULL)
            break;
        last = newest->id;
        grpc_error_t one = cancel_session(newest);
        error = one == GRPC_NO_ERROR ? error : one;
    }
    return error;
}

grpc_error_t ng_group_cancel_np(ng_group_t *group)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    if (group == NULL || group->hidden == NULL)
        return leave(invalid());
    return leave(cancel(group->hidden));
}

grpc_error_t ng_group_fin(ng_group_t *group)
{
    if (group == NULL || group->hidden == NULL)
        return invalid();
    struct ckptd_group *hidden = group->hidden;
    pthread_mutex_lock(&client.lock);
    if (is_inside(hidden)) {
        pthread_mutex_unlock(&client.lock);
        return fail(GRPC_OTHER_ERROR_CODE, "a callback can't end its group");
    }
    client.users += client.is_up;
    bool was_up = client.is_up;
    if (was_up)
        cancel(hidden);
    wait_until_done(hidden);
    client.users -= was_up;
    pthread_cond_broadcast(&client.changed);
    pthread_mutex_unlock(&client.lock);
    stop_thread(hidden);
    pthread_mutex_lock(&client.lock);
    /* After grpc_finalize, what the thread has left. */
    while (finish_one(hidden)) {
    }
    bool is_up = client.is_up;
    pthread_mutex_unlock(&client.lock);
    if (is_up)
        grpc_function_handle_destruct(&hidden->handle);
    free(hidden);
    group->hidden = NULL;
    return forget_error();
}
