#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "client.h"

static _Thread_local grpc_error_t last_error;
static _Thread_local char last_message[768];

grpc_error_t fail(grpc_error_t error, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    /* What it is made of may be the message before. */
    char message[sizeof last_message];
    vsnprintf(message, sizeof message, format, list);
    va_end(list);
    memcpy(last_message, message, sizeof message);
    last_error = error;
    return error;
}

grpc_error_t forget_error(void)
{
    last_error = GRPC_NO_ERROR;
    last_message[0] = '\0';
    return GRPC_NO_ERROR;
}

char *grpc_error_string(grpc_error_t error)
{
    static char names[][32] = {
        [GRPC_NO_ERROR] = "GRPC_NO_ERROR",
        [GRPC_NOT_INITIALIZED] = "GRPC_NOT_INITIALIZED",
        [GRPC_ALREADY_INITIALIZED] = "GRPC_ALREADY_INITIALIZED",
        [GRPC_CONFIGFILE_NOT_FOUND] = "GRPC_CONFIGFILE_NOT_FOUND",
        [GRPC_CONFIGFILE_ERROR] = "GRPC_CONFIGFILE_ERROR",
        [GRPC_SERVER_NOT_FOUND] = "GRPC_SERVER_NOT_FOUND",
        [GRPC_FUNCTION_NOT_FOUND] = "GRPC_FUNCTION_NOT_FOUND",
        [GRPC_INVALID_FUNCTION_HANDLE] = "GRPC_INVALID_FUNCTION_HANDLE",
        [GRPC_INVALID_SESSION_ID] = "GRPC_INVALID_SESSION_ID",
        [GRPC_RPC_REFUSED] = "GRPC_RPC_REFUSED",
        [GRPC_COMMUNICATION_FAILED] = "GRPC_COMMUNICATION_FAILED",
        [GRPC_SESSION_FAILED] = "GRPC_SESSION_FAILED",
        [GRPC_NOT_COMPLETED] = "GRPC_NOT_COMPLETED",
        [GRPC_NONE_COMPLETED] = "GRPC_NONE_COMPLETED",
        [GRPC_TIMEOUT_NP] = "GRPC_TIMEOUT_NP",
        [GRPC_CANCELED_NP] = "GRPC_CANCELED_NP",
        [GRPC_OTHER_ERROR_CODE] = "GRPC_OTHER_ERROR_CODE",
        [GRPC_UNKNOWN_ERROR_CODE] = "GRPC_UNKNOWN_ERROR_CODE",
    };
    size_t count = sizeof names / sizeof *names;
    bool is_known = error >= 0 && (size_t)error < count && names[error][0] != '\0';
    return names[is_known ? error : GRPC_UNKNOWN_ERROR_CODE];
}

grpc_error_t grpc_last_error_get_np(void)
{
    return last_error;
}

const char *grpc_last_error_message_np(void)
{
    return last_message;
}

grpc_error_t grpc_perror_np(char *prefix)
{
    bool has_prefix = prefix != NULL && *prefix != '\0';
    fprintf(stderr, "%s%s%s%s%s\n", has_prefix ? prefix : "", has_prefix ? ": " : "", grpc_error_string(last_error),
            *last_message != '\0' ? ": " : "", last_message);
    return GRPC_NO_ERROR;
}
