#include "json.h"

#include <stdlib.h>
#include <string.h>

#define DEEPEST 64

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \t\r\n");
}

/* What stands behind a string; NULL: it has no end. */
static const char *behind_string(const char *at)
{
    for (at++; *at != '"'; at++) {
        if (*at == '\\')
            at++;
        if (*at == '\0')
            return NULL;
    }
    return at + 1;
}

/* What stands behind a value. */
static const char *behind(const char *at)
{
    int depth = 0;
    do {
        at = skip_blanks(at);
        if (*at == '"') {
            at = behind_string(at);
            if (at == NULL)
                return NULL;
        } else if (*at == '{' || *at == '[') {
            if (++depth > DEEPEST)
                return NULL;
            at++;
        } else if (*at == '}' || *at == ']') {
            if (--depth < 0)
                return NULL;
            at++;
        } else if (depth > 0 && (*at == ',' || *at == ':')) {
            at++;
        } else {
            size_t length = strcspn(at, " \t\r\n,:{}[]\"");
            if (length == 0)
                return NULL;
            at += length;
        }
        at = skip_blanks(at);
    } while (depth > 0);
    return at;
}

const char *json_member(const char *object, const char *name)
{
    if (object == NULL || *(object = skip_blanks(object)) != '{')
        return NULL;
    const char *at = skip_blanks(object + 1);
    while (*at == '"') {
        const char *key = at, *value = behind_string(at);
        if (value == NULL || *(value = skip_blanks(value)) != ':')
            return NULL;
        value = skip_blanks(value + 1);
        if (json_is(key, name))
            return value;
        at = behind(value);
        if (at == NULL || *at != ',')
            return NULL;
        at = skip_blanks(at + 1);
    }
    return NULL;
}

const char *json_first(const char *array)
{
    if (array == NULL || *(array = skip_blanks(array)) != '[')
        return NULL;
    array = skip_blanks(array + 1);
    return *array == ']' || *array == '\0' ? NULL : array;
}

const char *json_next(const char *element)
{
    const char *at = behind(element);
    return at != NULL && *at == ',' ? skip_blanks(at + 1) : NULL;
}

bool json_is(const char *value, const char *text)
{
    size_t length = strlen(text);
    return value != NULL && *value == '"' && strncmp(value + 1, text, length) == 0 && value[1 + length] == '"';
}

long long json_number(const char *value)
{
    if (value == NULL || *value < '0' || *value > '9')
        return -1;
    char *end;
    long long number = strtoll(value, &end, 10);
    return strchr(" \t\r\n,}]", *end) == NULL ? -1 : number;
}

char *json_string(const char *value)
{
    if (value == NULL || *value != '"' || behind_string(value) == NULL)
        return NULL;
    char *text = malloc(strlen(value)), *to = text;
    for (value++; text != NULL && *value != '"'; value++) {
        if (*value == '\\') {
            static const char FROM[] = "\"\\/bfnrt", TO[] = "\"\\/\b\f\n\r\t";
            const char *found = strchr(FROM, *++value);
            if (found == NULL || *found == '\0') {
                free(text);
                return NULL;
            }
            *to++ = TO[found - FROM];
        } else {
            *to++ = *value;
        }
    }
    if (text != NULL)
        *to = '\0';
    return text;
}
