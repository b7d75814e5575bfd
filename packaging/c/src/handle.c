#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client.h"
#include "text.h"

struct ckptd_function *function_of(const grpc_function_handle_t *handle)
{
    struct ckptd_function *function = client.functions;
    while (handle != NULL && function != NULL && function != handle->hidden)
        function = function->next;
    return handle == NULL ? NULL : function;
}

void release(struct ckptd_function *function)
{
    if (--function->references > 0)
        return;
    struct ckptd_function **at = &client.functions;
    while (*at != NULL && *at != function)
        at = &(*at)->next;
    if (*at != NULL)
        *at = function->next;
    free(function->description.program);
    free(function);
}

/* MODULE/FUNCTION, of letters, digits and '_': it is a file's name, too. */
static bool is_name(const char *name)
{
    static const char LETTERS[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    size_t module = strspn(name, LETTERS);
    if (module == 0 || name[module] != '/')
        return false;
    size_t function = strspn(name + module + 1, LETTERS);
    return function > 0 && name[module + 1 + function] == '\0';
}

static grpc_error_t read_function(const char *name, struct ckptd_function *function)
{
    if (name == NULL || !is_name(name))
        return fail(GRPC_FUNCTION_NOT_FOUND, "%s is no name of a function, such as pi/pi_trial",
                    name == NULL ? "NULL" : name);
    char *path = text_of("%s/%s", client.config.functions, name);
    size_t length;
    char *text = path == NULL ? NULL : read_whole(path, MOST_DESCRIPTION, &length);
    grpc_error_t error = GRPC_NO_ERROR;
    if (text == NULL) {
        const char *why = errno == ENOENT ? "nobody has registered it; 'ckptd farm register' does" : strerror(errno);
        error = fail(GRPC_FUNCTION_NOT_FOUND, "failed to find the function %s: %s", name, why);
    } else {
        const char *wrong = strlen(text) < length ? "it is no text" : describe(text, &function->description);
        if (wrong == NULL && strcmp(function->description.name, name) != 0)
            wrong = "it is of another function";
        if (wrong != NULL)
            error = fail(GRPC_OTHER_ERROR_CODE, "failed to read the description %s: %s", path, wrong);
    }
    free(text);
    free(path);
    return error;
}

grpc_error_t grpc_function_handle_default(grpc_function_handle_t *handle, char *name)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    if (handle == NULL)
        return leave(fail(GRPC_INVALID_FUNCTION_HANDLE, "the handle is NULL"));
    handle->hidden = NULL;
    struct ckptd_function *function = calloc(1, sizeof *function);
    if (function == NULL)
        return leave(fail(GRPC_OTHER_ERROR_CODE, "there is no memory"));
    grpc_error_t error = read_function(name, function);
    if (error != GRPC_NO_ERROR) {
        free(function->description.program);
        free(function);
        return leave(error);
    }
    function->references = 1;
    function->next = client.functions;
    client.functions = function;
    handle->hidden = function;
    return leave(GRPC_NO_ERROR);
}

static bool is_here(const char *server)
{
    char name[256] = "";
    if (server == NULL || *server == '\0' || strcmp(server, "localhost") == 0)
        return true;
    return gethostname(name, sizeof name - 1) == 0 && strcmp(server, name) == 0;
}

grpc_error_t grpc_function_handle_init(grpc_function_handle_t *handle, char *server, char *name)
{
    if (!is_here(server)) {
        if (!enter())
            return GRPC_NOT_INITIALIZED;
        return leave(fail(GRPC_SERVER_NOT_FOUND, "the farm runs on this machine, not on %s", server));
    }
    return grpc_function_handle_default(handle, name);
}

grpc_error_t grpc_function_handle_destruct(grpc_function_handle_t *handle)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    struct ckptd_function *function = function_of(handle);
    if (function == NULL)
        return leave(fail(GRPC_INVALID_FUNCTION_HANDLE, "the handle was not initialized"));
    for (struct session *session = client.sessions; session != NULL; session = session->next)
        session->handle = session->handle == handle ? NULL : session->handle;
    handle->hidden = NULL;
    release(function);
    return leave(GRPC_NO_ERROR);
}

grpc_error_t grpc_get_handle(grpc_function_handle_t **handle, grpc_sessionid_t id)
{
    if (!enter())
        return GRPC_NOT_INITIALIZED;
    struct session *session = find_session(id);
    if (session == NULL || handle == NULL)
        return leave(fail(GRPC_INVALID_SESSION_ID, "there is no session %d", id));
    if (session->handle == NULL)
        return leave(fail(GRPC_INVALID_FUNCTION_HANDLE, "the handle of session %d was destructed", id));
    *handle = session->handle;
    return leave(GRPC_NO_ERROR);
}
