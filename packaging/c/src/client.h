/* What all parts of the library have in common: the calls, and the farm that runs them. */
#ifndef CKPTD_CLIENT_H
#define CKPTD_CLIENT_H

#include <grpc.h>
#include <pthread.h>
#include <time.h>

#include "message.h"

/* What a configuration file says; NULL and 0: nothing. */
struct config {
    char *farm, *ckptd, *functions, *dir, *timeout;
    unsigned jobs;
    /* A farm that nobody runs is not started. */
    bool starts_none;
};

/* A function that handles name, as long as one or a call needs it. */
struct ckptd_function {
    struct ckptd_function *next;
    unsigned references;
    struct description description;
};

/* A call. */
enum session_state {
    /* It is being submitted: nobody but the thread that does that knows of it. */
    STARTING,
    RUNNING,
    /* Its task has ended; its results were not taken. */
    ENDED,
    /* A thread takes them. */
    COLLECTING,
    OVER
};

struct session {
    struct session *next;
    grpc_sessionid_t id;
    enum session_state state;
    /* Whoever holds it beside the list: threads that wait for it, and a group. */
    unsigned pins;
    bool is_waited_for, is_told_of, is_grouped;
    unsigned task;
    grpc_error_t error;
    char message[512];
    grpc_function_handle_t *handle;
    struct ckptd_function *function;
    struct values values;
    unsigned char key[KEY_LENGTH];
    char *folder;
};

/* How a task has ended. */
struct end {
    unsigned task;
    grpc_error_t error;
    char why[64];
};

/* The farm's folder and its files. */
struct farm {
    char *folder, *results;
    /* Where this process has its calls, within the folder. */
    char *calls;
};

struct client {
    /* Of all that follows, except for what only grpc_initialize and the watching thread use. */
    pthread_mutex_t lock;
    /* A call has ended, there are more servers, the library is being finalized, a thread has left it. */
    pthread_cond_t changed;
    bool is_up, stops;
    /* It is being finalized: no call begins any more. */
    bool closes;
    /* The process that has initialized it: what another one has by fork() has neither its threads nor its calls. */
    pid_t owner;
    /* Threads that are in the library, beside the watching one. */
    unsigned users;
    struct config config;
    struct farm farm;
    struct ckptd_function *functions;
    /* The newest one first. */
    struct session *sessions;
    grpc_sessionid_t last_id;
    unsigned long calls;
    /* Calls that are STARTING, and those that are RUNNING. */
    unsigned starting, running;
    /* Ends of tasks that may be those of a call that is STARTING. */
    struct end *early;
    size_t early_count, early_room;
    unsigned servers;
    pthread_t watcher;
    int wake[2];
};

extern struct client client;

/* errors.c: remembers an error and what there is to say; returns the error. */
grpc_error_t fail(grpc_error_t error, const char *format, ...) __attribute__((format(printf, 2, 3)));
grpc_error_t forget_error(void);

/* client.c: takes the lock for a function of the library; false: it is not initialized, and the lock is not taken. */
bool enter(void);
/* Gives the lock back, and returns the error. */
grpc_error_t leave(grpc_error_t error);
/* When so many milliseconds will have passed, by the condition's clock. */
struct timespec later(long milliseconds);

/* config.c */
grpc_error_t read_config(const char *path, struct config *config);
void free_config(struct config *config);

/* command.c: runs "ckptd farm ..." (the words end with NULL); its status, 127 if it can't be run. said: all that it has
   said, or NULL; it goes to a descriptor instead if that is not negative. */
int run_ckptd(const char *const *words, char **said, int descriptor);
/* The last line of what it has said that is no number. */
const char *last_said(char *said);

/* farm.c: starts it, and finds its folder. */
grpc_error_t open_farm(void);
void close_farm(void);
/* Asks it how it is, and takes what it says. False: nobody runs it. */
bool ask_farm(void);

/* session.c, with the lock held. */
struct session *find_session(grpc_sessionid_t id);
void end_session(struct session *session, grpc_error_t error, const char *why);
/* Waits until it has ended, and takes its results: false: the library is being finalized. */
bool complete(struct session *session);
/* Takes them once it is ENDED; the lock is given back meanwhile. */
void collect(struct session *session);
void forget_old_sessions(void);
/* Those that a group holds are that one's from then on. */
void free_sessions(void);
void free_session(struct session *session);
/* A folder with files; without the lock as well. */
void remove_folder(const char *path);
void take_end(const struct end *end);

/* call.c: begins a call; the lock is held, and given back meanwhile. */
grpc_error_t begin_call(grpc_function_handle_t *handle, const struct values *values, int retries, bool is_grouped,
                        struct session **begun);
/* What a handle stands for; NULL: it is none. */
struct ckptd_function *function_of(const grpc_function_handle_t *handle);
void release(struct ckptd_function *function);
/* argstack.c: NULL, or what is wrong. */
const char *values_of_stack(const struct description *description, struct values *values,
                            const grpc_arg_stack_t *stack);
/* wait.c, with the lock held. */
grpc_error_t cancel_session(struct session *session);

/* watch.c */
grpc_error_t start_watching(void);
void stop_watching(void);

#endif
