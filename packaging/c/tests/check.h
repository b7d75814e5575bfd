/* What the tests have in common. */
#ifndef CHECK_H
#define CHECK_H

#include <grpc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(right)                                                                                                   \
    do {                                                                                                               \
        if (!(right)) {                                                                                                \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #right, grpc_last_error_message_np());     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Whether a code is the one that is wanted, and there is something to say of it. */
#define CHECK_ERROR(is, wanted, said)                                                                                  \
    do {                                                                                                               \
        grpc_error_t is_ = (is);                                                                                       \
        if (is_ != (wanted) || strstr(grpc_last_error_message_np(), (said)) == NULL) {                                 \
            fprintf(stderr, "%s:%d: %s is %s: %s\n", __FILE__, __LINE__, #is, grpc_error_string(is_),                  \
                    grpc_last_error_message_np());                                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Why a call has failed. */
static inline const char *why(grpc_sessionid_t session)
{
    static _Thread_local char text[512];
    if (grpc_session_message_np(session, text, sizeof text) != GRPC_NO_ERROR)
        snprintf(text, sizeof text, "(%s)", grpc_last_error_message_np());
    return text;
}

#endif
