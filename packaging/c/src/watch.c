/*
 * A thread that hears of ends of tasks: it reads the farm's results as they grow, and sleeps until they do
 * (inotify(7)). While calls run, it also asks the farm every other second how many tasks run at a time, and starts it
 * if nobody runs it.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"
#include "json.h"
#include "text.h"

/* How often the farm is asked, and results are looked for that are not there yet, in milliseconds. */
#define ASK 2000
#define LOOK 50
/* How often nobody runs the farm in a row until it is started. */
#define PATIENCE 2
#define PIECE ((size_t)1 << 16)
#define LONGEST_LINE ((size_t)16 << 20)

/* Results as they are read. */
static struct {
    char *path;
    dev_t device;
    ino_t inode;
    off_t read;
    /* A line of which the end has not come. */
    char *line;
    size_t length, room;
    bool skips;
    int inotify, watched;
} results;

static bool keep_rest(const char *bytes, size_t length)
{
    if (results.length + length + 1 > results.room) {
        size_t room = (results.length + length + 1) * 2;
        char *more = room > LONGEST_LINE ? NULL : realloc(results.line, room);
        if (more == NULL)
            return false;
        results.line = more;
        results.room = room;
    }
    memcpy(results.line + results.length, bytes, length);
    results.length += length;
    results.line[results.length] = '\0';
    return true;
}

static void take_line(const char *line)
{
    const char *outcome = json_member(line, "outcome");
    long long task = json_number(json_member(line, "task")), status = json_number(json_member(line, "status"));
    if (outcome == NULL || task <= 0 || task > UINT32_MAX)
        return;
    struct end end = {.task = (unsigned)task, .error = GRPC_SESSION_FAILED};
    if (json_is(outcome, "exited") && status == 0)
        end.error = GRPC_NO_ERROR;
    else if (json_is(outcome, "exited"))
        snprintf(end.why, sizeof end.why, "its program ended with status %lld", status);
    else if (json_is(outcome, "signalled"))
        snprintf(end.why, sizeof end.why, "its program was ended by signal %lld",
                 json_number(json_member(line, "signal")));
    else if (json_is(outcome, "timed-out"))
        end = (struct end){end.task, GRPC_TIMEOUT_NP, "it took too long"};
    else if (json_is(outcome, "cancelled"))
        end = (struct end){end.task, GRPC_CANCELED_NP, "it was cancelled"};
    else
        snprintf(end.why, sizeof end.why, "its task has failed");
    pthread_mutex_lock(&client.lock);
    take_end(&end);
    pthread_mutex_unlock(&client.lock);
}

static void take_piece(const char *bytes, size_t length)
{
    while (length > 0) {
        const char *end = memchr(bytes, '\n', length);
        size_t part = end == NULL ? length : (size_t)(end - bytes);
        results.skips = results.skips || !keep_rest(bytes, part);
        if (end != NULL) {
            if (!results.skips && results.length > 0)
                take_line(results.line);
            results.length = 0;
            results.skips = false;
            part++;
        }
        bytes += part;
        length -= part;
    }
}

/* Watches the file that is there now. */
static void watch(int file)
{
    struct stat found;
    if (fstat(file, &found) != 0)
        return;
    bool is_other = found.st_dev != results.device || found.st_ino != results.inode || found.st_size < results.read;
    if (is_other) {
        results.device = found.st_dev;
        results.inode = found.st_ino;
        results.read = 0;
        results.length = 0;
        results.skips = false;
    }
    if (is_other || results.watched < 0)
        results.watched = inotify_add_watch(results.inotify, results.path,
                                            IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF);
}

static void read_more(void)
{
    static char piece[PIECE];
    int file = open(results.path, O_RDONLY | O_CLOEXEC);
    if (file < 0) {
        results.watched = -1;
        return;
    }
    /* First: what comes later is told of. */
    watch(file);
    ssize_t got;
    while ((got = pread(file, piece, sizeof piece, results.read)) > 0 || (got < 0 && errno == EINTR)) {
        if (got <= 0)
            continue;
        results.read += got;
        take_piece(piece, (size_t)got);
    }
    close(file);
}

static long long now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

static void fail_all(const char *why)
{
    pthread_mutex_lock(&client.lock);
    for (struct session *session = client.sessions; session != NULL; session = session->next) {
        if (session->state == RUNNING)
            end_session(session, GRPC_COMMUNICATION_FAILED, why);
    }
    pthread_mutex_unlock(&client.lock);
}

/* Sees to it that somebody runs the farm. */
static void look_after_farm(void)
{
    static int missing;
    if (access(client.farm.calls, F_OK) != 0 && errno == ENOENT) {
        /* A new one of that name would give its numbers to other tasks. */
        fail_all("the farm was removed");
        return;
    }
    missing = ask_farm() ? 0 : missing + 1;
    if (missing >= PATIENCE && !client.config.starts_none) {
        const char *words[] = {"start", "--unless-stopped", client.config.farm, NULL};
        run_ckptd(words, NULL, -1);
        missing = 0;
    }
}

/* Sleeps until there is something to hear of; false: the library is being finalized. */
static bool wait_for_calls(void)
{
    pthread_mutex_lock(&client.lock);
    while (!client.stops && client.starting + client.running == 0)
        pthread_cond_wait(&client.changed, &client.lock);
    bool goes_on = !client.stops;
    pthread_mutex_unlock(&client.lock);
    return goes_on;
}

static void *keep_watching(void *nothing)
{
    (void)nothing;
    long long asked = now();
    while (wait_for_calls()) {
        read_more();
        if (now() - asked >= ASK) {
            look_after_farm();
            asked = now();
        }
        struct pollfd wait[] = {{.fd = results.inotify, .events = POLLIN}, {.fd = client.wake[0], .events = POLLIN}};
        long long left = asked + ASK - now();
        int limit = results.watched < 0 ? LOOK : (int)(left > 0 ? left : 0);
        if (poll(wait, 2, limit) > 0 && wait[0].revents != 0) {
            char events[4096] __attribute__((aligned(8)));
            /* What has happened is seen by reading. */
            while (read(results.inotify, events, sizeof events) > 0) {
            }
        }
    }
    return nothing;
}

static void free_all(void)
{
    if (results.inotify >= 0)
        close(results.inotify);
    for (int i = 0; i < 2; i++) {
        if (client.wake[i] >= 0)
            close(client.wake[i]);
        client.wake[i] = -1;
    }
    free(results.path);
    free(results.line);
    memset(&results, 0, sizeof results);
    results.inotify = results.watched = -1;
}

grpc_error_t start_watching(void)
{
    memset(&results, 0, sizeof results);
    client.wake[0] = client.wake[1] = -1;
    client.stops = false;
    results.watched = -1;
    /* Where a user has too many already, results are looked for more often instead. */
    results.inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    results.path = text_of("%s/results.jsonl", client.farm.results);
    struct stat found;
    if (results.path != NULL && stat(results.path, &found) == 0) {
        /* What has ended before is of no call. */
        results.device = found.st_dev;
        results.inode = found.st_ino;
        results.read = found.st_size;
    }
    int error = results.path == NULL || pipe2(client.wake, O_CLOEXEC | O_NONBLOCK) != 0 ? errno : 0;
    sigset_t all, before;
    sigfillset(&all);
    /* Signals are the program's own threads'. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (error == 0)
        error = pthread_create(&client.watcher, NULL, keep_watching, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0)
        return GRPC_NO_ERROR;
    free_all();
    return fail(GRPC_OTHER_ERROR_CODE, "failed to watch the farm's results: %s", strerror(error));
}

void stop_watching(void)
{
    pthread_mutex_lock(&client.lock);
    client.stops = true;
    pthread_cond_broadcast(&client.changed);
    pthread_mutex_unlock(&client.lock);
    while (write(client.wake[1], "", 1) < 0 && errno == EINTR) {
    }
    pthread_join(client.watcher, NULL);
    free_all();
}
