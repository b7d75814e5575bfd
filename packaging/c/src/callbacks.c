#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "group.h"

bool is_inside(const struct ckptd_group *group)
{
    return group->is_calling_back && pthread_equal(group->caller, pthread_self());
}

unsigned begun(const struct ckptd_group *group)
{
    unsigned count = group->submitting;
    for (const struct group_call *call = group->calls; call != NULL; call = call->next)
        count += call->session->state == RUNNING;
    return count;
}

static struct group_call **ended_one(struct ckptd_group *group)
{
    for (struct group_call **at = &group->calls; *at != NULL; at = &(*at)->next) {
        enum session_state state = (*at)->session->state;
        /* Once the library is finalized, nobody takes results any more. */
        if (state == OVER || (state == ENDED && client.is_up))
            return at;
    }
    return NULL;
}

/* The callbacks of a call, without the lock. */
static void call_back(struct ckptd_group *group, struct group_call *call)
{
    struct session *session = call->session;
    if (group->consume != NULL)
        group->consume(group->self, session->id, session->error, session->values.at, group->data);
    if (group->cleanup != NULL)
        group->cleanup(group->self, session->values.at, group->data);
    if (call->stack != NULL)
        grpc_arg_stack_destruct(call->stack);
}

bool finish_one(struct ckptd_group *group)
{
    struct group_call **at = group->is_calling_back ? NULL : ended_one(group);
    if (at == NULL)
        return false;
    struct group_call *call = *at;
    *at = call->next;
    group->is_calling_back = true;
    group->caller = pthread_self();
    struct session *session = call->session;
    bool is_up = client.is_up;
    /* A thread of the group's is not in the library otherwise. */
    client.users += is_up;
    if (session->state != OVER)
        complete(session);
    group->has_failed = group->has_failed || session->error != GRPC_NO_ERROR;
    client.users -= is_up;
    pthread_cond_broadcast(&client.changed);
    pthread_mutex_unlock(&client.lock);
    call_back(group, call);
    pthread_mutex_lock(&client.lock);
    group->is_calling_back = false;
    session->is_waited_for = true;
    session->pins--;
    /* Without a function it is in no list any more. */
    if (session->function == NULL && session->pins == 0)
        free_session(session);
    free(call);
    pthread_cond_broadcast(&client.changed);
    return true;
}

static void *keep_finishing(void *of)
{
    struct ckptd_group *group = of;
    pthread_mutex_lock(&client.lock);
    while (!group->stops) {
        if (!finish_one(group))
            pthread_cond_wait(&client.changed, &client.lock);
    }
    pthread_mutex_unlock(&client.lock);
    return NULL;
}

grpc_error_t start_thread(struct ckptd_group *group)
{
    if (group->has_thread)
        return GRPC_NO_ERROR;
    sigset_t all, before;
    sigfillset(&all);
    /* Signals are the program's own threads'. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&group->thread, NULL, keep_finishing, group);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0)
        return fail(GRPC_OTHER_ERROR_CODE, "failed to begin a thread: %s", strerror(error));
    group->has_thread = true;
    return GRPC_NO_ERROR;
}

void stop_thread(struct ckptd_group *group)
{
    if (!group->has_thread)
        return;
    pthread_mutex_lock(&client.lock);
    group->stops = true;
    pthread_cond_broadcast(&client.changed);
    pthread_mutex_unlock(&client.lock);
    pthread_join(group->thread, NULL);
}
