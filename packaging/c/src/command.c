#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client.h"

#define MOST_WORDS 24
/* The most that is kept of what ckptd says. */
#define MOST_SAID ((size_t)16 << 20)
#define CANT_RUN 127

extern char **environ;

/* Everything that a pipe has; NULL without memory. It is read to its end, whatever it has. */
static char *read_pipe(int pipe)
{
    size_t length = 0, room = 4096;
    char *text = malloc(room), rest[4096];
    for (;;) {
        bool keeps = text != NULL && length + 1 < room;
        ssize_t got = keeps ? read(pipe, text + length, room - 1 - length) : read(pipe, rest, sizeof rest);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        length += keeps ? (size_t)got : 0;
        if (text != NULL && length + 1 == room && room < MOST_SAID) {
            char *more = realloc(text, room * 2);
            room = more == NULL ? room : room * 2;
            text = more == NULL ? text : more;
        }
    }
    if (text != NULL)
        text[length] = '\0';
    return text;
}

/* Nothing of this program's signals is for ckptd. */
static int start(pid_t *child, const char *const *words, int output)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    const int signals[] = {SIGCHLD, SIGPIPE, SIGINT, SIGQUIT, SIGTERM, SIGHUP};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        sigaddset(&usual, signals[i]);
    int error = posix_spawn_file_actions_init(&files);
    if (error != 0)
        return error;
    error = posix_spawnattr_init(&attributes);
    if (error == 0) {
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
        posix_spawnattr_setsigmask(&attributes, &none);
        posix_spawnattr_setsigdefault(&attributes, &usual);
        /* A terminal's keys are for this program, which may answer them by cancelling. */
        posix_spawnattr_setpgroup(&attributes, 0);
        error = posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
        if (error == 0)
            error = posix_spawn_file_actions_adddup2(&files, output, 1);
        if (error == 0)
            error = posix_spawn_file_actions_adddup2(&files, output, 2);
        if (error == 0)
            error = posix_spawnp(child, words[0], &files, &attributes, (char *const *)words, environ);
        posix_spawnattr_destroy(&attributes);
    }
    posix_spawn_file_actions_destroy(&files);
    return error;
}

static int status_of(pid_t child)
{
    int status;
    pid_t ended;
    do {
        ended = waitpid(child, &status, 0);
    } while (ended < 0 && errno == EINTR);
    /* Where SIGCHLD is ignored, nobody knows: what it has said counts. */
    if (ended < 0)
        return 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run_ckptd(const char *const *words, char **said, int descriptor)
{
    const char *all[MOST_WORDS + 1] = {client.config.ckptd, "farm"};
    size_t count = 2;
    for (; *words != NULL && count < MOST_WORDS - 2; words++) {
        all[count++] = *words;
        /* Behind the command's name, since what follows '--' is the task's. */
        if (count == 3 && client.config.dir != NULL) {
            all[count++] = "--dir";
            all[count++] = client.config.dir;
        }
    }
    all[count] = NULL;
    int pipes[2] = {-1, descriptor};
    if (said != NULL)
        *said = NULL;
    if (descriptor < 0 && pipe2(pipes, O_CLOEXEC) != 0)
        return CANT_RUN;
    pid_t child;
    int error = start(&child, all, pipes[1]);
    if (descriptor < 0) {
        close(pipes[1]);
        char *text = error == 0 ? read_pipe(pipes[0]) : NULL;
        close(pipes[0]);
        if (said != NULL)
            *said = text;
        else
            free(text);
    }
    if (error != 0) {
        errno = error;
        return CANT_RUN;
    }
    return status_of(child);
}

const char *last_said(char *said)
{
    if (said == NULL || *said == '\0')
        return "it can't be run";
    char *last = said;
    for (char *line = said, *next; line != NULL && *line != '\0'; line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        if (line[strspn(line, "0123456789")] != '\0')
            last = line;
    }
    return strncmp(last, "ckptd: ", 7) == 0 ? last + 7 : last;
}
