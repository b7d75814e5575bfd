/* As much of JSON as ckptd's own answers need. Texts end with a NUL; whatever is in them, nothing behind that is
   read. */
#ifndef CKPTD_JSON_H
#define CKPTD_JSON_H

#include <stdbool.h>

/* The value of a member of an object; NULL: there is none, or the text is malformed before it. */
const char *json_member(const char *object, const char *name);
/* The first element of an array, and the one behind another; NULL: there is none. */
const char *json_first(const char *array);
const char *json_next(const char *element);
/* Whether it is this string, written without escapes. */
bool json_is(const char *value, const char *text);
/* A number without sign and fraction; -1: it is none. */
long long json_number(const char *value);
/* A copy of a string; NULL: it is none, or has escapes other than of quotes, slashes and controls. */
char *json_string(const char *value);

#endif
