/* What a function takes, as 'ckptd farm register' has written it. */
#ifndef CKPTD_DESCRIBE_H
#define CKPTD_DESCRIBE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MOST_ARGUMENTS 64
#define MOST_FACTORS 8
#define LONGEST_NAME 63
/* The most bytes of all arguments of a call. */
#define MOST_VALUES ((size_t)1 << 30)
/* The largest description. */
#define MOST_DESCRIPTION ((size_t)1 << 20)

enum mode { MODE_IN = 1, MODE_OUT = 2, MODE_INOUT = 3 };
enum kind { KIND_CHAR = 1, KIND_SHORT, KIND_INT, KIND_LONG, KIND_FLOAT, KIND_DOUBLE, KIND_STRING };

struct factor {
    size_t number;
    /* The argument that says it; -1: number does. */
    int argument;
};

struct argument {
    char name[LONGEST_NAME + 1];
    enum mode mode;
    enum kind kind;
    /* None: the argument is no pointer, or a string. */
    size_t factors;
    struct factor size[MOST_FACTORS];
};

struct description {
    char name[2 * LONGEST_NAME + 2];
    char *program;
    /* Of the lines of arguments. */
    uint64_t check;
    size_t count;
    struct argument arguments[MOST_ARGUMENTS];
};

/* A value that is no pointer. */
union scalar {
    char of_char;
    short of_short;
    int of_int;
    long of_long;
    float of_float;
    double of_double;
};

/* The arguments of a call. at: where each is. */
struct values {
    void *at[MOST_ARGUMENTS];
    union scalar scalars[MOST_ARGUMENTS];
};

/* Reads a file that was registered; NULL, or what is wrong. */
const char *describe(char *text, struct description *description);
/* Reads the lines of arguments; NULL, or what is wrong. */
const char *describe_arguments(char *text, struct description *description);

bool is_scalar(const struct argument *argument);
size_t size_of(enum kind kind);
/* How many elements an argument has; NULL, or what is wrong. */
const char *count_of(const struct description *description, size_t argument, void *const *at, size_t *count);

/* Takes arguments as grpc_call has them. */
void values_of_list(const struct description *description, struct values *values, va_list list);
/* Takes arguments as a stack has them. */
void values_of_pointers(const struct description *description, struct values *values, void *const *pointers);

#endif
