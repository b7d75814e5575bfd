#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"

/* How long a farm may take to tell of an end that 'ckptd farm cancel' knows of, in milliseconds. */
#define PATIENCE 10000

static grpc_error_t unknown(grpc_sessionid_t id)
{
    return fail(GRPC_INVALID_SESSION_ID, "there is no session %d", id);
}

static grpc_error_t finalized(void)
{
    return fail(GRPC_NOT_INITIALIZED, "grpc_finalize was called meanwhile");
}

/* How a call has ended that was waited for. */
static grpc_error_t outcome(struct session *session)
{
    session->is_waited_for = true;
    if (session->error == GRPC_NO_ERROR)
        return GRPC_NO_ERROR;
    return fail(GRPC_SESSION_FAILED, "session %d: %s", session->id, session->message);
}

/* Waits for one whose number is known. */
static grpc_error_t wait_for(grpc_sessionid_t id)
{
    struct session *session = find_session(id);
    if (session == NULL)
        return unknown(id);
    return complete(session) ? outcome(session) : finalized();
}

grpc_error_t grpc_wait(grpc_sessionid_t id)
{
    return enter() ? leave(wait_for(id)) : GRPC_NOT_INITIALIZED;
}

static grpc_error_t check_all(const grpc_sessionid_t *ids, size_t count)
{
    if (ids == NULL || count == 0)
        return fail(GRPC_INVALID_SESSION_ID, "there is no session to wait for");
    for (size_t i = 0; i < count; i++) {
        if (find_session(ids[i]) == NULL)
            return unknown(ids[i]);
    }
    return GRPC_NO_ERROR;
}

grpc_error_t grpc_wait_and(grpc_sessionid_t *ids, size_t count)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    grpc_error_t error = check_all(ids, count);
    for (size_t i = 0; i < count && (error == GRPC_NO_ERROR || error == GRPC_SESSION_FAILED); i++) {
        grpc_error_t one = wait_for(ids[i]);
        error = one == GRPC_NO_ERROR ? error : one;
    }
    return leave(error);
}

/* One that has ended, of these or, without any, of all that were not waited for; NULL: none has. left: how many
   there are. */
static struct session *any_ended(const grpc_sessionid_t *ids, size_t count, size_t *left)
{
    struct session *ended = NULL;
    *left = 0;
    for (struct session *session = client.sessions; session != NULL; session = session->next) {
        bool is_meant = ids == NULL && session->state != STARTING && !session->is_waited_for && !session->is_grouped;
        for (size_t i = 0; ids != NULL && i < count; i++)
            is_meant = is_meant || (session->id == ids[i] && session->state != STARTING);
        if (!is_meant)
            continue;
        ++*left;
        /* The oldest one. */
        if (session->state == ENDED || session->state == OVER)
            ended = session;
    }
    return ended;
}

static grpc_error_t wait_for_any(const grpc_sessionid_t *ids, size_t count, grpc_sessionid_t *id)
{
    size_t left;
    *id = GRPC_SESSIONID_VOID;
    for (;;) {
        if (!client.is_up)
            return finalized();
        struct session *session = any_ended(ids, count, &left);
        if (session == NULL && left == 0)
            return ids == NULL ? GRPC_NO_ERROR : fail(GRPC_INVALID_SESSION_ID, "a session was forgotten meanwhile");
        if (session == NULL) {
            pthread_cond_wait(&client.changed, &client.lock);
            continue;
        }
        /* Of several threads, each has another one. */
        session->is_waited_for = true;
        if (!complete(session))
            return finalized();
        *id = session->id;
        return outcome(session);
    }
}

/* The same where the number of one is to be told. */
static grpc_error_t check_or(const grpc_sessionid_t *ids, size_t count, const grpc_sessionid_t *ended)
{
    grpc_error_t error = check_all(ids, count);
    if (error == GRPC_NO_ERROR && ended == NULL)
        error = fail(GRPC_INVALID_SESSION_ID, "there is no room for the session's number");
    return error;
}

grpc_error_t grpc_wait_or(grpc_sessionid_t *ids, size_t count, grpc_sessionid_t *ended)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    grpc_error_t error = check_or(ids, count, ended);
    return leave(error == GRPC_NO_ERROR ? wait_for_any(ids, count, ended) : error);
}

grpc_error_t grpc_wait_any(grpc_sessionid_t *ended)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    if (ended == NULL)
        return leave(fail(GRPC_INVALID_SESSION_ID, "there is no room for the session's number"));
    return leave(wait_for_any(NULL, 0, ended));
}

grpc_error_t grpc_wait_all(void)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    grpc_error_t error = GRPC_NO_ERROR;
    grpc_sessionid_t id;
    do {
        grpc_error_t one = wait_for_any(NULL, 0, &id);
        error = one == GRPC_NO_ERROR ? error : one;
    } while (id != GRPC_SESSIONID_VOID);
    return leave(error);
}

grpc_error_t grpc_probe(grpc_sessionid_t id)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    struct session *session = find_session(id);
    if (session == NULL)
        return leave(unknown(id));
    if (session->state == RUNNING)
        return leave(fail(GRPC_NOT_COMPLETED, "session %d runs", id));
    if (!complete(session))
        return leave(finalized());
    if (session->error != GRPC_NO_ERROR)
        return leave(fail(GRPC_SESSION_FAILED, "session %d: %s", id, session->message));
    return leave(GRPC_NO_ERROR);
}

grpc_error_t grpc_probe_or(grpc_sessionid_t *ids, size_t count, grpc_sessionid_t *ended)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    grpc_error_t error = check_or(ids, count, ended);
    if (error != GRPC_NO_ERROR)
        return leave(error);
    size_t left;
    struct session *session = any_ended(ids, count, &left);
    *ended = session == NULL ? GRPC_SESSIONID_VOID : session->id;
    if (session == NULL)
        return leave(fail(GRPC_NONE_COMPLETED, "all of them run"));
    return leave(complete(session) ? GRPC_NO_ERROR : finalized());
}

grpc_error_t cancel_session(struct session *session)
{
    if (session->state != RUNNING)
        return GRPC_NO_ERROR;
    char task[16], *said;
    grpc_sessionid_t id = session->id;
    snprintf(task, sizeof task, "%u", session->task);
    const char *words[] = {"cancel", "--farm", client.config.farm, task, NULL};
    pthread_mutex_unlock(&client.lock);
    int status = run_ckptd(words, &said, -1);
    if (status != 0)
        fail(GRPC_COMMUNICATION_FAILED, "failed to cancel session %d: %s", id, last_said(said));
    free(said);
    pthread_mutex_lock(&client.lock);
    struct timespec limit = later(PATIENCE);
    int waited = 0;
    /* Others may have waited for it, and it may be forgotten. */
    while (client.is_up && waited == 0 && (session = find_session(id)) != NULL && session->state == RUNNING)
        waited = pthread_cond_timedwait(&client.changed, &client.lock, &limit);
    if (!client.is_up)
        return finalized();
    if (session == NULL || session->state != RUNNING)
        return GRPC_NO_ERROR;
    return status != 0 ? GRPC_COMMUNICATION_FAILED
                       : fail(GRPC_COMMUNICATION_FAILED, "the farm does not tell that session %d has ended", id);
}

grpc_error_t grpc_cancel(grpc_sessionid_t id)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    struct session *session = find_session(id);
    return leave(session == NULL ? unknown(id) : cancel_session(session));
}

grpc_error_t grpc_cancel_all(void)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    grpc_error_t error = GRPC_NO_ERROR;
    /* The newest one first: what waits is not to begin in the place of what ends. A new one has a larger number. */
    for (grpc_sessionid_t id = client.last_id; id > 0 && client.running > 0; id--) {
        struct session *session = find_session(id);
        grpc_error_t one = session == NULL ? GRPC_NO_ERROR : cancel_session(session);
        error = one == GRPC_NO_ERROR ? error : one;
    }
    return leave(error);
}

grpc_error_t grpc_get_error(grpc_sessionid_t id)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    struct session *session = find_session(id);
    if (session == NULL)
        return leave(unknown(id));
    if (session->state == RUNNING)
        return leave(GRPC_NOT_COMPLETED);
    return leave(complete(session) ? session->error : finalized());
}

grpc_error_t grpc_get_failed_sessionid(grpc_sessionid_t *id)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    if (id == NULL)
        return leave(fail(GRPC_INVALID_SESSION_ID, "there is no room for the session's number"));
    struct session *failed = NULL;
    for (struct session *session = client.sessions; session != NULL; session = session->next) {
        if (session->state == OVER && session->error != GRPC_NO_ERROR && !session->is_told_of)
            failed = session;
    }
    *id = failed == NULL ? GRPC_SESSIONID_VOID : failed->id;
    if (failed != NULL)
        failed->is_told_of = true;
    return leave(GRPC_NO_ERROR);
}

grpc_error_t grpc_session_message_np(grpc_sessionid_t id, char *text, size_t size)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    struct session *session = find_session(id);
    if (session == NULL || text == NULL || size == 0)
        return leave(unknown(id));
    bool is_over = session->state != RUNNING && complete(session);
    snprintf(text, size, "%s", is_over ? session->message : "");
    return leave(is_over ? GRPC_NO_ERROR : fail(GRPC_NOT_COMPLETED, "session %d runs", id));
}

grpc_error_t grpc_session_log_np(grpc_sessionid_t id, int descriptor)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    struct session *session = find_session(id);
    if (session == NULL || descriptor < 0)
        return leave(unknown(id));
    char task[16];
    snprintf(task, sizeof task, "%u", session->task);
    const char *words[] = {"logs", "--farm", client.config.farm, task, NULL};
    pthread_mutex_unlock(&client.lock);
    int status = run_ckptd(words, NULL, descriptor);
    pthread_mutex_lock(&client.lock);
    return leave(status == 0 ? GRPC_NO_ERROR : fail(GRPC_COMMUNICATION_FAILED, "ckptd farm logs %s has failed", task));
}

unsigned grpc_session_task_np(grpc_sessionid_t id)
{
    if (!enter())
        return 0;
    struct session *session = find_session(id);
    unsigned task = session == NULL ? 0 : session->task;
    leave(GRPC_NO_ERROR);
    return task;
}
