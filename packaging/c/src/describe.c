#include "describe.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

static const struct {
    const char *name;
    enum kind kind;
    size_t size;
} kinds[] = {
    {"char", KIND_CHAR, sizeof(char)},       {"short", KIND_SHORT, sizeof(short)}, {"int", KIND_INT, sizeof(int)},
    {"long", KIND_LONG, sizeof(long)},       {"float", KIND_FLOAT, sizeof(float)}, {"double", KIND_DOUBLE, sizeof(double)},
    {"string", KIND_STRING, sizeof(char)},
};

size_t size_of(enum kind kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (kinds[i].kind == kind)
            return kinds[i].size;
    }
    return 0;
}

bool is_scalar(const struct argument *argument)
{
    return argument->factors == 0 && argument->kind != KIND_STRING;
}

static bool is_name(const char *word)
{
    size_t length = strlen(word);
    return length > 0 && length <= LONGEST_NAME && word[0] > '9';
}

static enum kind kind_of(const char *word)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, word) == 0)
            return kinds[i].kind;
    }
    return 0;
}

static enum mode mode_of(const char *word)
{
    if (strcmp(word, "in") == 0)
        return MODE_IN;
    if (strcmp(word, "out") == 0)
        return MODE_OUT;
    return strcmp(word, "inout") == 0 ? MODE_INOUT : 0;
}

/* The next of a line's words; NULL: there is none. */
static char *next_word(char **rest)
{
    char *word = *rest;
    if (word == NULL || *word == '\0')
        return NULL;
    char *blank = strchr(word, ' ');
    if (blank != NULL)
        *blank++ = '\0';
    *rest = blank;
    return word;
}

/* Sizes may name arguments that stand behind them: their names are kept until all are known. */
struct names {
    char *of[MOST_ARGUMENTS][MOST_FACTORS];
};

static const char *read_argument(char *line, struct description *description, struct names *names)
{
    if (description->count == MOST_ARGUMENTS)
        return "it has too many arguments";
    struct argument *argument = &description->arguments[description->count];
    memset(argument, 0, sizeof *argument);
    char *mode = next_word(&line), *kind = next_word(&line), *name = next_word(&line);
    if (mode == NULL || kind == NULL || name == NULL || !is_name(name))
        return "an argument has no mode, type and name";
    argument->mode = mode_of(mode);
    argument->kind = kind_of(kind);
    if (argument->mode == 0 || argument->kind == 0)
        return "an argument has a mode or a type that is unknown";
    strcpy(argument->name, name);
    for (char *word; (word = next_word(&line)) != NULL; argument->factors++) {
        if (argument->factors == MOST_FACTORS)
            return "an array's size has too many factors";
        struct factor *factor = &argument->size[argument->factors];
        factor->argument = -1;
        if (is_name(word)) {
            names->of[description->count][argument->factors] = word;
            continue;
        }
        char *end;
        errno = 0;
        unsigned long long number = strtoull(word, &end, 10);
        if (errno != 0 || *word == '-' || *end != '\0' || number > UINT32_MAX)
            return "an array's size is no number";
        factor->number = (size_t)number;
    }
    if (argument->kind == KIND_STRING ? argument->factors > 0 || argument->mode != MODE_IN
                                      : argument->factors == 0 && argument->mode != MODE_IN)
        return "an argument can't be what it is said to be";
    description->count++;
    return NULL;
}

static const char *find_sizes(struct description *description, const struct names *names)
{
    for (size_t i = 0; i < description->count; i++) {
        for (size_t j = 0; j < description->arguments[i].factors; j++) {
            const char *name = names->of[i][j];
            for (size_t k = 0; name != NULL && k < description->count; k++) {
                const struct argument *found = &description->arguments[k];
                bool counts = found->kind == KIND_SHORT || found->kind == KIND_INT || found->kind == KIND_LONG;
                if (counts && is_scalar(found) && strcmp(found->name, name) == 0)
                    description->arguments[i].size[j].argument = (int)k;
            }
            if (name != NULL && description->arguments[i].size[j].argument < 0)
                return "an array's size is an argument that is no number";
        }
    }
    return NULL;
}

const char *describe_arguments(char *text, struct description *description)
{
    struct names names = {{{NULL}}};
    description->check = checksum(CHECKSUM, text, strlen(text));
    description->count = 0;
    while (*text != '\0') {
        char *end = strchr(text, '\n');
        if (end == NULL || strncmp(text, "argument ", 9) != 0)
            return "a line of it is no argument";
        *end = '\0';
        const char *wrong = read_argument(text + 9, description, &names);
        if (wrong != NULL)
            return wrong;
        text = end + 1;
    }
    return find_sizes(description, &names);
}

/* What stands behind a word at the beginning of a line; NULL: the line is another one. */
static char *line_of(char **text, const char *word)
{
    char *line = *text, *end = strchr(line, '\n');
    size_t length = strlen(word);
    if (end == NULL || strncmp(line, word, length) != 0)
        return NULL;
    *end = '\0';
    *text = end + 1;
    return line + length;
}

const char *describe(char *text, struct description *description)
{
    if (line_of(&text, "ckptd function 1") == NULL)
        return "it is of another version, or none";
    char *name = line_of(&text, "name ");
    if (name == NULL || *name == '\0' || strlen(name) >= sizeof description->name)
        return "it has no name";
    strcpy(description->name, name);
    char *program = line_of(&text, "program ");
    if (program == NULL || *program != '/')
        return "it has no program";
    size_t length = strlen(text);
    if (length < 4 || strcmp(text + length - 4, "end\n") != 0)
        return "it has no end";
    text[length - 4] = '\0';
    const char *wrong = describe_arguments(text, description);
    if (wrong != NULL)
        return wrong;
    description->program = strdup(program);
    return description->program == NULL ? "there is no memory" : NULL;
}

static long long number_of(const struct argument *argument, const void *at)
{
    switch (argument->kind) {
    case KIND_SHORT:
        return *(const short *)at;
    case KIND_INT:
        return *(const int *)at;
    case KIND_LONG:
        return *(const long *)at;
    default:
        return 0;
    }
}

const char *count_of(const struct description *description, size_t which, void *const *at, size_t *count)
{
    const struct argument *argument = &description->arguments[which];
    *count = 1;
    if (argument->kind == KIND_STRING) {
        *count = strlen(at[which]) + 1;
        return *count > MOST_VALUES ? "a string is too long" : NULL;
    }
    for (size_t i = 0; i < argument->factors; i++) {
        const struct factor *factor = &argument->size[i];
        long long number = (long long)factor->number;
        if (factor->argument >= 0)
            number = number_of(&description->arguments[factor->argument], at[factor->argument]);
        if (number < 0)
            return "an array's size is negative";
        if (number > 0 && *count > MOST_VALUES / (unsigned long long)number)
            return "an array is too large";
        *count *= (size_t)number;
    }
    return *count > MOST_VALUES / size_of(argument->kind) ? "an array is too large" : NULL;
}

void values_of_list(const struct description *description, struct values *values, va_list list)
{
    for (size_t i = 0; i < description->count; i++) {
        const struct argument *argument = &description->arguments[i];
        union scalar *scalar = &values->scalars[i];
        values->at[i] = scalar;
        if (!is_scalar(argument)) {
            values->at[i] = va_arg(list, void *);
            continue;
        }
        switch (argument->kind) {
        case KIND_CHAR:
            scalar->of_char = (char)va_arg(list, int);
            break;
        case KIND_SHORT:
            scalar->of_short = (short)va_arg(list, int);
            break;
        case KIND_INT:
            scalar->of_int = va_arg(list, int);
            break;
        case KIND_LONG:
            scalar->of_long = va_arg(list, long);
            break;
        case KIND_FLOAT:
            scalar->of_float = (float)va_arg(list, double);
            break;
        default:
            scalar->of_double = va_arg(list, double);
        }
    }
}

void values_of_pointers(const struct description *description, struct values *values, void *const *pointers)
{
    for (size_t i = 0; i < description->count; i++) {
        values->at[i] = pointers[i];
        if (is_scalar(&description->arguments[i]) && pointers[i] != NULL) {
            memcpy(&values->scalars[i], pointers[i], size_of(description->arguments[i].kind));
            values->at[i] = &values->scalars[i];
        }
    }
}
