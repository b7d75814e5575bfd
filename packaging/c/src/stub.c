/* A program that runs the functions of a module. Its messages are in the task's log, and its last line in the call's
   message. */
#include "ckptd_farm_stub.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "message.h"
#include "text.h"

/* Of sysexits.h: wrong usage, wrong data, a file that can't be written. */
enum { USAGE = 64, DATA = 65, OUTPUT = 74 };

static int fail(int status, const char *what, const char *why)
{
    fprintf(stderr, "failed to %s: %s\n", what, why);
    return status;
}

/* Makes room for what only comes out. */
static const char *make_room(const struct description *description, void **at)
{
    for (size_t i = 0; i < description->count; i++) {
        size_t count;
        if (description->arguments[i].mode != MODE_OUT)
            continue;
        const char *wrong = count_of(description, i, at, &count);
        if (wrong != NULL)
            return wrong;
        size_t size = count * size_of(description->arguments[i].kind);
        at[i] = calloc(1, size > 0 ? size : 1);
        if (at[i] == NULL)
            return "there is no memory";
    }
    return NULL;
}

static int run(const struct ckptd_farm_function *function, const struct description *description, const char *folder)
{
    char *path = text_of("%s/arguments", folder);
    struct message arguments = {NULL, 0}, results = {NULL, 0};
    if (path != NULL)
        arguments.bytes = read_whole(path, MOST_VALUES, &arguments.length);
    free(path);
    if (arguments.bytes == NULL)
        return fail(DATA, "read the arguments", strerror(errno));
    void *at[MOST_ARGUMENTS] = {NULL};
    unsigned char key[KEY_LENGTH];
    const char *wrong = take_arguments(description, key, &arguments, at);
    if (wrong == NULL)
        wrong = make_room(description, at);
    if (wrong == NULL) {
        /* The function may change where they are. */
        void *given[MOST_ARGUMENTS];
        memcpy(given, at, sizeof at);
        function->call(given);
        wrong = message_of(description, RESULTS, key, at, &results);
    }
    int status = wrong == NULL ? 0 : fail(DATA, "take the arguments", wrong);
    if (wrong == NULL && !write_whole(folder, "results", results.bytes, results.length))
        status = fail(OUTPUT, "write the results", strerror(errno));
    for (size_t i = 0; i < description->count; i++) {
        if (description->arguments[i].mode == MODE_OUT)
            free(at[i]);
    }
    free(arguments.bytes);
    free(results.bytes);
    return status;
}

int ckptd_farm_stub_main(int argc, char **argv, const struct ckptd_farm_function *functions)
{
    if (argc != 3)
        return fail(USAGE, "run a function", "this program is called as PROGRAM MODULE/FUNCTION FOLDER");
    while (functions->name != NULL && strcmp(functions->name, argv[1]) != 0)
        functions++;
    if (functions->name == NULL)
        return fail(USAGE, "run the function",
                    "this program has none of that name; 'ckptd farm register' names another one");
    char *text = strdup(functions->arguments);
    struct description *description = calloc(1, sizeof *description);
    const char *wrong = "there is no memory";
    if (text != NULL && description != NULL)
        wrong = describe_arguments(text, description);
    int status = wrong == NULL ? run(functions, description, argv[2]) : fail(DATA, "read what it takes", wrong);
    free(text);
    free(description);
    return status;
}
