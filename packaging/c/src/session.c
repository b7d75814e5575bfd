#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "text.h"

/* How many calls are remembered that were waited for. */
#define MOST_REMEMBERED 1000

struct session *find_session(grpc_sessionid_t id)
{
    for (struct session *session = client.sessions; session != NULL; session = session->next) {
        if (session->id == id && session->state != STARTING)
            return session;
    }
    return NULL;
}

void end_session(struct session *session, grpc_error_t error, const char *why)
{
    if (session->state != RUNNING)
        return;
    session->state = ENDED;
    session->error = error;
    snprintf(session->message, sizeof session->message, "%s", why);
    client.running--;
    pthread_cond_broadcast(&client.changed);
}

void take_end(const struct end *end)
{
    for (struct session *session = client.sessions; session != NULL; session = session->next) {
        if (session->state == RUNNING && session->task == end->task) {
            end_session(session, end->error, end->why);
            return;
        }
    }
    /* It may be one of which this does not know the number yet; otherwise it is nobody's here. */
    if (client.starting == 0)
        return;
    if (client.early_count == client.early_room) {
        size_t room = client.early_room == 0 ? 64 : client.early_room * 2;
        struct end *more = realloc(client.early, room * sizeof *more);
        if (more == NULL)
            return;
        client.early = more;
        client.early_room = room;
    }
    client.early[client.early_count++] = *end;
}

/* The last line that a task has written to its standard error, behind what there is to say. */
static void add_last_line(struct session *session)
{
    char tail[512], path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%u.err", client.farm.results, session->task);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    size_t length = 0;
    if (fseek(file, 0, SEEK_END) == 0) {
        long size = ftell(file);
        long from = size > (long)sizeof tail - 1 ? size - ((long)sizeof tail - 1) : 0;
        if (size > 0 && fseek(file, from, SEEK_SET) == 0)
            length = fread(tail, 1, sizeof tail - 1, file);
    }
    fclose(file);
    while (length > 0 && strchr(" \t\r\n", tail[length - 1]) != NULL)
        length--;
    tail[length] = '\0';
    char *line = strrchr(tail, '\n');
    line = line == NULL ? tail : line + 1;
    size_t said = strlen(session->message);
    if (*line != '\0')
        snprintf(session->message + said, sizeof session->message - said, ": %.*s", 300, line);
}

/* Takes the results of a call that has ended right; without the lock. */
static grpc_error_t take(struct session *session)
{
    char *path = text_of("%s/results", session->folder);
    struct message results = {NULL, 0};
    if (path != NULL)
        results.bytes = read_whole(path, MOST_VALUES, &results.length);
    const char *wrong = NULL;
    if (results.bytes == NULL)
        wrong = errno == ENOENT ? "there are none" : strerror(errno);
    else
        wrong = take_results(&session->function->description, session->key, &results, session->values.at);
    if (wrong != NULL)
        snprintf(session->message, sizeof session->message, "failed to take the results of task %u: %s", session->task,
                 wrong);
    free(results.bytes);
    free(path);
    return wrong == NULL ? GRPC_NO_ERROR : GRPC_COMMUNICATION_FAILED;
}

void remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        /* A program that does as it likes may have made a folder. */
        if (unlinkat(dirfd(folder), entry->d_name, 0) != 0)
            unlinkat(dirfd(folder), entry->d_name, AT_REMOVEDIR);
    }
    if (folder != NULL)
        closedir(folder);
    rmdir(path);
}

void collect(struct session *session)
{
    session->state = COLLECTING;
    pthread_mutex_unlock(&client.lock);
    if (session->error == GRPC_NO_ERROR)
        session->error = take(session);
    else if (session->error == GRPC_SESSION_FAILED)
        add_last_line(session);
    if (session->folder != NULL)
        remove_folder(session->folder);
    pthread_mutex_lock(&client.lock);
    session->state = OVER;
    pthread_cond_broadcast(&client.changed);
}

bool complete(struct session *session)
{
    session->pins++;
    while (client.is_up && session->state != OVER) {
        if (session->state == ENDED)
            collect(session);
        else
            pthread_cond_wait(&client.changed, &client.lock);
    }
    session->pins--;
    return client.is_up;
}

void free_session(struct session *session)
{
    if (session->function != NULL)
        release(session->function);
    if (session->folder != NULL && session->state != OVER)
        remove_folder(session->folder);
    free(session->folder);
    free(session);
}

void forget_old_sessions(void)
{
    unsigned count = 0;
    for (struct session **at = &client.sessions; *at != NULL;) {
        struct session *session = *at;
        bool is_old = session->state == OVER && session->is_waited_for && session->pins == 0 && ++count > MOST_REMEMBERED;
        if (!is_old) {
            at = &session->next;
            continue;
        }
        *at = session->next;
        free_session(session);
    }
}

void free_sessions(void)
{
    while (client.sessions != NULL) {
        struct session *session = client.sessions;
        client.sessions = session->next;
        if (session->pins == 0) {
            free_session(session);
            continue;
        }
        /* Nobody will wait for it any more. */
        if (session->state != OVER) {
            remove_folder(session->folder);
            session->error = GRPC_CANCELED_NP;
            session->state = OVER;
        }
        release(session->function);
        session->function = NULL;
    }
    free(client.early);
    client.early = NULL;
    client.early_count = client.early_room = 0;
    client.starting = client.running = 0;
}
