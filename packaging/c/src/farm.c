#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "client.h"
#include "json.h"
#include "text.h"

/* The longest answer of a farm, and how long it may take. */
#define MOST_ANSWER ((size_t)4 << 20)
#define PATIENCE 10000
/* The most of its notes about tasks that can't be brought back. */
#define MOST_NOTES ((size_t)64 << 20)
/* How often the folder of calls is made that others remove. */
#define TRIES 100

static bool find_folder(const char *said)
{
    /* Behind warnings, as of another farm that is damaged. */
    while (said != NULL && *said != '[') {
        said = strchr(said, '\n');
        said = said == NULL ? NULL : said + 1;
    }
    if (said == NULL)
        return false;
    for (const char *run = json_first(said); run != NULL; run = json_next(run)) {
        if (!json_is(json_member(run, "name"), client.config.farm))
            continue;
        char *results = json_string(json_member(run, "results"));
        char *slash = results == NULL ? NULL : strrchr(results, '/');
        if (slash == NULL) {
            free(results);
            return false;
        }
        client.farm.results = results;
        client.farm.folder = strndup(results, (size_t)(slash - results));
        return client.farm.folder != NULL;
    }
    return false;
}

/* Makes the folder of this process's calls. */
static grpc_error_t make_calls(void)
{
    char *all = text_of("%s/calls", client.farm.folder);
    int error = ENOMEM;
    for (int tries = 0; all != NULL && tries < TRIES; tries++) {
        if (mkdir(all, 0700) == 0 || errno == EEXIST)
            client.farm.calls = text_of("%s/XXXXXX", all);
        if (client.farm.calls != NULL && mkdtemp(client.farm.calls) != NULL) {
            free(all);
            return GRPC_NO_ERROR;
        }
        error = errno;
        free(client.farm.calls);
        client.farm.calls = NULL;
        /* The last one of the others may just have removed theirs. */
        if (error != ENOENT)
            break;
    }
    free(all);
    return fail(GRPC_SERVER_NOT_FOUND, "failed to make a folder in %s: %s", client.farm.folder, strerror(error));
}

grpc_error_t open_farm(void)
{
    const char *name = client.config.farm;
    char number[16], *said;
    snprintf(number, sizeof number, "%u", client.config.jobs);
    const char *with_jobs[] = {"start", "--jobs", number, name, NULL}, *without[] = {"start", name, NULL};
    const char *look[] = {"status", name, NULL};
    const char *const *start = client.config.jobs > 0 ? with_jobs : without;
    int status = run_ckptd(client.config.starts_none ? look : start, &said, -1);
    if (status != 0) {
        fail(GRPC_SERVER_NOT_FOUND, "the farm %s can't be used: %s", name, last_said(said));
        free(said);
        return GRPC_SERVER_NOT_FOUND;
    }
    free(said);
    const char *list[] = {"ls", "--json", NULL};
    status = run_ckptd(list, &said, -1);
    bool is_found = status == 0 && said != NULL && find_folder(said);
    free(said);
    if (!is_found)
        return fail(GRPC_SERVER_NOT_FOUND, "the farm %s is not among those that 'ckptd farm ls' lists", name);
    client.servers = 1;
    ask_farm();
    return make_calls();
}

void close_farm(void)
{
    if (client.farm.calls != NULL) {
        rmdir(client.farm.calls);
        /* It stays while others have theirs there. */
        char *slash = strrchr(client.farm.calls, '/');
        *slash = '\0';
        rmdir(client.farm.calls);
    }
    free(client.farm.calls);
    free(client.farm.results);
    free(client.farm.folder);
    memset(&client.farm, 0, sizeof client.farm);
}

/* A connection to the farm; -1: nobody runs it. */
static int connect_to_farm(void)
{
    /* The path may be longer than a socket's address: by its folder's descriptor it is short. */
    int folder = open(client.farm.folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int it = folder < 0 ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (it >= 0) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/socket", folder);
        if (connect(it, (struct sockaddr *)&address, sizeof address) != 0) {
            close(it);
            it = -1;
        }
    }
    if (folder >= 0)
        close(folder);
    return it;
}

/* A line from a connection; NULL: none has come. */
static char *hear(int it)
{
    static const char QUESTION[] = "{\"status\":{}}\n";
    if (send(it, QUESTION, sizeof QUESTION - 1, MSG_NOSIGNAL) != (ssize_t)sizeof QUESTION - 1)
        return NULL;
    size_t length = 0, room = 4096;
    char *text = malloc(room);
    while (text != NULL) {
        struct pollfd wait = {.fd = it, .events = POLLIN};
        int ready = poll(&wait, 1, PATIENCE);
        if (ready < 0 && errno == EINTR)
            continue;
        ssize_t got = ready > 0 ? recv(it, text + length, room - 1 - length, 0) : -1;
        if (got <= 0)
            break;
        length += (size_t)got;
        text[length] = '\0';
        if (text[length - 1] == '\n')
            return text;
        if (length + 1 == room) {
            char *more = room < MOST_ANSWER ? realloc(text, room *= 2) : NULL;
            if (more == NULL)
                break;
            text = more;
        }
    }
    free(text);
    return NULL;
}

static void take_answer(const char *text)
{
    const char *status = json_member(text, "status");
    long long jobs = json_number(json_member(status, "jobs"));
    pthread_mutex_lock(&client.lock);
    if (jobs > 0 && jobs <= 10000 && client.servers != (unsigned)jobs) {
        client.servers = (unsigned)jobs;
        pthread_cond_broadcast(&client.changed);
    }
    pthread_mutex_unlock(&client.lock);
}

/* Ends a call if its task can't be brought back from its checkpoint: the last note about that counts. */
static void end_if_stuck(struct session *session, const char *notes)
{
    const char *last = NULL;
    for (const char *line = notes; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (json_number(json_member(line, "task")) == session->task)
            last = json_member(line, "reason");
    }
    if (last == NULL || *last != '"')
        return;
    char why[sizeof session->message], *reason = json_string(last);
    snprintf(why, sizeof why, "it can't be brought back from its checkpoint%s%s", reason == NULL ? "" : ": ",
             reason == NULL ? "" : reason);
    free(reason);
    end_session(session, GRPC_SESSION_FAILED, why);
}

/* Hears of tasks that can't be brought back: notes of the farm tell, also once nobody runs it. */
static void take_stuck(void)
{
    size_t length;
    char *path = text_of("%s/stuck", client.farm.folder);
    char *notes = path == NULL ? NULL : read_whole(path, MOST_NOTES, &length);
    free(path);
    if (notes == NULL)
        return;
    pthread_mutex_lock(&client.lock);
    for (struct session *session = client.sessions; session != NULL; session = session->next) {
        if (session->state == RUNNING)
            end_if_stuck(session, notes);
    }
    pthread_mutex_unlock(&client.lock);
    free(notes);
}

bool ask_farm(void)
{
    take_stuck();
    int it = connect_to_farm();
    if (it < 0)
        return false;
    char *answer = hear(it);
    close(it);
    /* Whoever does not answer is there, and may do so later. */
    if (answer != NULL)
        take_answer(answer);
    free(answer);
    return true;
}
