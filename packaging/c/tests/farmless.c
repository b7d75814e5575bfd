/* Whose farm goes away while a call runs, or the call with it. CONFIGURATION removed|stopped|stuck */
#include "check.h"

int main(int argc, char **argv)
{
    grpc_function_handle_t wait;
    grpc_sessionid_t id;
    long pid = 0;
    CHECK(argc == 3);
    int is_removed = strcmp(argv[2], "removed") == 0, is_stuck = strcmp(argv[2], "stuck") == 0;
    CHECK(grpc_initialize(argv[1]) == GRPC_NO_ERROR);
    CHECK(grpc_function_handle_default(&wait, "t/wait") == GRPC_NO_ERROR);
    CHECK(grpc_call_async(&wait, &id, is_removed || is_stuck ? 600 : 2, &pid) == GRPC_NO_ERROR);
    puts("runs");
    fflush(stdout);
    if (is_removed) {
        CHECK_ERROR(grpc_wait(id), GRPC_SESSION_FAILED, "the farm was removed");
        CHECK(grpc_get_error(id) == GRPC_COMMUNICATION_FAILED);
        CHECK_ERROR(grpc_call(&wait, 1, &pid), GRPC_COMMUNICATION_FAILED, "failed to write arguments");
    } else if (is_stuck) {
        CHECK_ERROR(grpc_wait(id), GRPC_SESSION_FAILED, "can't be brought back from its checkpoint: restart t1.1");
        CHECK(grpc_get_error(id) == GRPC_SESSION_FAILED);
    } else {
        CHECK(grpc_wait(id) == GRPC_NO_ERROR && pid > 0);
    }
    CHECK(grpc_finalize() == GRPC_NO_ERROR);
    puts("right");
    return 0;
}
