/* A configuration file: lines "NAME VALUE"; empty ones and those that begin with '#' are left out. */
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client.h"
#include "text.h"

#define LARGEST (64 * 1024)

static grpc_error_t keep(char **at, const char *value)
{
    free(*at);
    *at = strdup(value);
    return *at == NULL ? fail(GRPC_OTHER_ERROR_CODE, "there is no memory") : GRPC_NO_ERROR;
}

static grpc_error_t read_line(struct config *config, const char *path, unsigned number, const char *name,
                              const char *value)
{
    struct {
        const char *name;
        char **at;
    } texts[] = {
        {"farm", &config->farm},
        {"ckptd", &config->ckptd},
        {"functions", &config->functions},
        {"dir", &config->dir},
        {"timeout", &config->timeout},
    };
    if (*value == '\0')
        return fail(GRPC_CONFIGFILE_ERROR, "%s:%u: %s has no value", path, number, name);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        if (strcmp(texts[i].name, name) == 0)
            return keep(texts[i].at, value);
    }
    if (strcmp(name, "jobs") == 0) {
        char *end;
        long jobs = strtol(value, &end, 10);
        if (*end != '\0' || jobs < 1 || jobs > 10000)
            return fail(GRPC_CONFIGFILE_ERROR, "%s:%u: jobs must be a number from 1 to 10000", path, number);
        config->jobs = (unsigned)jobs;
        return GRPC_NO_ERROR;
    }
    if (strcmp(name, "start") == 0) {
        config->starts_none = strcmp(value, "no") == 0;
        return config->starts_none || strcmp(value, "yes") == 0
                   ? GRPC_NO_ERROR
                   : fail(GRPC_CONFIGFILE_ERROR, "%s:%u: start must be yes or no", path, number);
    }
    return fail(GRPC_CONFIGFILE_ERROR, "%s:%u: there is no setting %s", path, number, name);
}

static grpc_error_t read_lines(struct config *config, const char *path, char *text)
{
    unsigned number = 0;
    for (char *line = text, *next; line != NULL; line = next) {
        number++;
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        line += strspn(line, " \t\r");
        for (size_t length = strlen(line); length > 0 && isspace((unsigned char)line[length - 1]);)
            line[--length] = '\0';
        if (*line == '\0' || *line == '#')
            continue;
        char *value = line + strcspn(line, " \t");
        if (*value != '\0')
            *value++ = '\0';
        grpc_error_t error = read_line(config, path, number, line, value + strspn(value, " \t"));
        if (error != GRPC_NO_ERROR)
            return error;
    }
    return GRPC_NO_ERROR;
}

static grpc_error_t fill_in(struct config *config)
{
    const char *ckptd = getenv("CKPTD");
    if (config->farm == NULL && keep(&config->farm, "farm") != GRPC_NO_ERROR)
        return GRPC_OTHER_ERROR_CODE;
    if (config->ckptd == NULL && keep(&config->ckptd, ckptd != NULL && *ckptd != '\0' ? ckptd : "ckptd") != GRPC_NO_ERROR)
        return GRPC_OTHER_ERROR_CODE;
    if (config->functions != NULL)
        return GRPC_NO_ERROR;
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    if (data != NULL && *data == '/')
        config->functions = text_of("%s/ckptd/farm/functions", data);
    else if (home != NULL && *home == '/')
        config->functions = text_of("%s/.local/share/ckptd/farm/functions", home);
    else
        return fail(GRPC_CONFIGFILE_ERROR, "HOME is not set; a line 'functions DIR' names where functions are registered");
    return config->functions == NULL ? fail(GRPC_OTHER_ERROR_CODE, "there is no memory") : GRPC_NO_ERROR;
}

grpc_error_t read_config(const char *path, struct config *config)
{
    memset(config, 0, sizeof *config);
    if (path != NULL && *path != '\0') {
        size_t length;
        char *text = read_whole(path, LARGEST, &length);
        if (text == NULL && errno == ENOENT)
            return fail(GRPC_CONFIGFILE_NOT_FOUND, "%s is not there", path);
        if (text == NULL)
            return fail(GRPC_CONFIGFILE_ERROR, "failed to read %s: %s", path, strerror(errno));
        grpc_error_t error = read_lines(config, path, text);
        free(text);
        if (error != GRPC_NO_ERROR)
            return error;
    }
    return fill_in(config);
}

void free_config(struct config *config)
{
    free(config->farm);
    free(config->ckptd);
    free(config->functions);
    free(config->dir);
    free(config->timeout);
    memset(config, 0, sizeof *config);
}
