/* Everything that can go wrong with a call. CONFIGURATION FOLDER: functions are in FOLDER, and there is room for
   files. */
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static grpc_function_handle_t handle_of(char *name)
{
    grpc_function_handle_t handle;
    CHECK(grpc_function_handle_default(&handle, name) == GRPC_NO_ERROR);
    return handle;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(text, file) != EOF && fclose(file) == 0);
}

static void configurations(const char *folder)
{
    static const struct {
        const char *text;
        grpc_error_t error;
        const char *said;
    } wrong[] = {
        {"# one\n\nspeed 3\n", GRPC_CONFIGFILE_ERROR, ":3: there is no setting speed"},
        {"jobs 0\n", GRPC_CONFIGFILE_ERROR, ":1: jobs must be"},
        {"farm\n", GRPC_CONFIGFILE_ERROR, ":1: farm has no value"},
        {"start maybe\n", GRPC_CONFIGFILE_ERROR, ":1: start must be"},
        {"ckptd /no/such/program\n", GRPC_SERVER_NOT_FOUND, "can't be run"},
        {"farm none\nstart no\n", GRPC_SERVER_NOT_FOUND, "none of that name"},
        {"farm ../x\n", GRPC_SERVER_NOT_FOUND, "can't be used"},
    };
    char path[4096];
    snprintf(path, sizeof path, "%s/wrong.conf", folder);
    CHECK_ERROR(grpc_initialize("/no/such/file"), GRPC_CONFIGFILE_NOT_FOUND, "/no/such/file");
    CHECK_ERROR(grpc_initialize("/"), GRPC_CONFIGFILE_ERROR, "failed to read");
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_file(path, wrong[i].text);
        CHECK_ERROR(grpc_initialize(path), wrong[i].error, wrong[i].said);
    }
    CHECK_ERROR(grpc_finalize(), GRPC_NOT_INITIALIZED, "grpc_initialize");
}

static void handles(const char *folder)
{
    grpc_function_handle_t handle = {NULL}, never = {NULL};
    char path[4096];
    CHECK_ERROR(grpc_function_handle_default(&handle, "t/missing"), GRPC_FUNCTION_NOT_FOUND, "ckptd farm register");
    CHECK_ERROR(grpc_function_handle_default(&handle, "../t/all"), GRPC_FUNCTION_NOT_FOUND, "no name");
    CHECK_ERROR(grpc_function_handle_default(&handle, NULL), GRPC_FUNCTION_NOT_FOUND, "NULL");
    CHECK_ERROR(grpc_function_handle_default(NULL, "t/all"), GRPC_INVALID_FUNCTION_HANDLE, "NULL");
    CHECK_ERROR(grpc_function_handle_init(&handle, "elsewhere.example", "t/all"), GRPC_SERVER_NOT_FOUND, "elsewhere");
    CHECK_ERROR(grpc_function_handle_destruct(&never), GRPC_INVALID_FUNCTION_HANDLE, "not initialized");
    static const struct {
        const char *text, *said;
    } wrong[] = {
        {"", "of another version"},
        {"ckptd function 2\n", "of another version"},
        {"ckptd function 1\nname t/broken\nprogram p\nend\n", "no program"},
        {"ckptd function 1\nname t/broken\nprogram /p\nargument in int n\n", "no end"},
        {"ckptd function 1\nname t/broken\nprogram /p\nargument in quad n\nend\n", "unknown"},
        {"ckptd function 1\nname t/broken\nprogram /p\nargument out int n\nend\n", "can't be"},
        {"ckptd function 1\nname t/broken\nprogram /p\nargument in int a m\nend\n", "no number"},
        {"ckptd function 1\nname t/broken\nprogram /p\nargument in int a -1\nend\n", "no number"},
        {"ckptd function 1\nname t/other\nprogram /p\nend\n", "another function"},
    };
    snprintf(path, sizeof path, "%s/t/broken", folder);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        write_file(path, wrong[i].text);
        CHECK_ERROR(grpc_function_handle_default(&handle, "t/broken"), GRPC_OTHER_ERROR_CODE, wrong[i].said);
    }
}

static void arguments(void)
{
    grpc_function_handle_t fill = handle_of("t/fill"), twice = handle_of("t/twice");
    grpc_sessionid_t id;
    double values[1];
    CHECK_ERROR(grpc_call(&fill, -1L, values), GRPC_OTHER_ERROR_CODE, "size is negative");
    CHECK_ERROR(grpc_call(&fill, 1L << 40, values), GRPC_OTHER_ERROR_CODE, "too large");
    CHECK_ERROR(grpc_call(&twice, 1, NULL), GRPC_OTHER_ERROR_CODE, "NULL");
    CHECK_ERROR(grpc_call_async(&twice, NULL, 1, values), GRPC_INVALID_SESSION_ID, "no room");
    CHECK_ERROR(grpc_wait(-1), GRPC_INVALID_SESSION_ID, "no session -1");
    CHECK_ERROR(grpc_wait_or(NULL, 0, &id), GRPC_INVALID_SESSION_ID, "no session");
    CHECK(grpc_session_task_np(12345) == 0);
}

/* What a function's program may do instead of what it should. */
static void servers(void)
{
    grpc_function_handle_t crash = handle_of("t/crash"), leave = handle_of("t/leave"), twice = handle_of("t/twice");
    grpc_sessionid_t id;
    long result = 7;
    CHECK_ERROR(grpc_call(&crash, 1), GRPC_SESSION_FAILED, "ended by signal 6: about to crash");
    CHECK_ERROR(grpc_call(&leave, 3), GRPC_SESSION_FAILED, "ended with status 3: leaves with 3");
    CHECK_ERROR(grpc_call(&leave, 0), GRPC_COMMUNICATION_FAILED, "there are none");
    CHECK(grpc_call_async(&leave, &id, 9) == GRPC_NO_ERROR);
    CHECK_ERROR(grpc_wait(id), GRPC_SESSION_FAILED, "status 9");
    CHECK(grpc_get_error(id) == GRPC_SESSION_FAILED && strstr(why(id), "leaves with 9") != NULL);
    static const struct {
        char *name;
        grpc_error_t error;
        const char *said;
    } bad[] = {
        {"bad/empty", GRPC_COMMUNICATION_FAILED, "too short"},
        {"bad/truncated", GRPC_COMMUNICATION_FAILED, "damaged"},
        {"bad/longer", GRPC_COMMUNICATION_FAILED, "damaged"},
        {"bad/garbage", GRPC_COMMUNICATION_FAILED, "another kind"},
        {"bad/arguments", GRPC_COMMUNICATION_FAILED, "another kind"},
        {"bad/kept", GRPC_NO_ERROR, ""},
        {"bad/foreign", GRPC_COMMUNICATION_FAILED, "another call"},
        {"bad/other", GRPC_COMMUNICATION_FAILED, "other arguments"},
        {"bad/folder", GRPC_COMMUNICATION_FAILED, "failed to take the results"},
        {"bad/gone", GRPC_SESSION_FAILED, "status 127"},
        {"bad/unlike", GRPC_SESSION_FAILED, "a function with other arguments"},
        {"bad/unknown", GRPC_SESSION_FAILED, "this program has none of that name"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        grpc_function_handle_t handle = handle_of(bad[i].name);
        result = 7;
        CHECK_ERROR(grpc_call(&handle, 4, &result), bad[i].error, bad[i].said);
        CHECK(result == (bad[i].error == GRPC_NO_ERROR ? 8 : 7));
        grpc_function_handle_destruct(&handle);
    }
    /* And after all that, it works. */
    CHECK(grpc_call(&twice, 4, &result) == GRPC_NO_ERROR && result == 8);
}

static void logs(const char *folder)
{
    grpc_function_handle_t leave = handle_of("t/leave");
    grpc_sessionid_t id;
    char path[4096], text[64] = "";
    CHECK(grpc_call_async(&leave, &id, 5) == GRPC_NO_ERROR && grpc_session_task_np(id) > 0);
    grpc_wait(id);
    snprintf(path, sizeof path, "%s/logged", folder);
    FILE *file = fopen(path, "w+");
    CHECK(file != NULL && grpc_session_log_np(id, fileno(file)) == GRPC_NO_ERROR);
    rewind(file);
    CHECK(fgets(text, sizeof text, file) != NULL && strcmp(text, "leaves with 5\n") == 0);
    fclose(file);
}

/* What a child does harms no call of its parent's. */
static void children(void)
{
    grpc_function_handle_t twice = handle_of("t/twice");
    long result = 0;
    grpc_sessionid_t id;
    int status = 0;
    CHECK(grpc_call_async(&twice, &id, 21, &result) == GRPC_NO_ERROR);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_ERROR(grpc_cancel(id), GRPC_NOT_INITIALIZED, "a child");
        CHECK_ERROR(grpc_finalize(), GRPC_NOT_INITIALIZED, "a child");
        CHECK_ERROR(grpc_initialize(NULL), GRPC_NOT_INITIALIZED, "a child");
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(grpc_wait(id) == GRPC_NO_ERROR && result == 42);
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    CHECK(strcmp(grpc_error_string(GRPC_RPC_REFUSED), "GRPC_RPC_REFUSED") == 0);
    CHECK(strcmp(grpc_error_string(-3), "GRPC_UNKNOWN_ERROR_CODE") == 0);
    configurations(argv[2]);
    CHECK(grpc_initialize(argv[1]) == GRPC_NO_ERROR);
    handles(argv[2]);
    arguments();
    servers();
    logs(argv[2]);
    children();
    CHECK(grpc_finalize() == GRPC_NO_ERROR);
    puts("right");
    return 0;
}
