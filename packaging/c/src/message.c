#include "message.h"

#include <stdlib.h>
#include <string.h>

#include "text.h"

#define VERSION 1

struct header {
    char magic[8];
    uint32_t version, what;
    uint64_t check;
    unsigned char key[KEY_LENGTH];
    uint32_t values, zero;
};

struct value {
    uint32_t argument, size;
    uint64_t count;
};

static const char MAGIC[8] = {'C', 'K', 'P', 'T', 'D', 'R', 'P', 'C'};

static bool is_in(const struct argument *argument, enum what what)
{
    return (argument->mode & (what == ARGUMENTS ? MODE_IN : MODE_OUT)) != 0;
}

static size_t padded(size_t length)
{
    return (length + 7) & ~(size_t)7;
}

/* The length of a message with these values; NULL, or what is wrong. */
static const char *measure(const struct description *description, enum what what, void *const *at, size_t *length,
                           uint32_t *values)
{
    *length = sizeof(struct header) + sizeof(uint64_t);
    *values = 0;
    for (size_t i = 0; i < description->count; i++) {
        const struct argument *argument = &description->arguments[i];
        if (!is_in(argument, what))
            continue;
        if (at[i] == NULL)
            return "an argument is NULL";
        size_t count;
        const char *wrong = count_of(description, i, at, &count);
        if (wrong != NULL)
            return wrong;
        *length += sizeof(struct value) + padded(count * size_of(argument->kind));
        (*values)++;
        if (*length > MOST_VALUES)
            return "the arguments are too large";
    }
    return NULL;
}

const char *message_of(const struct description *description, enum what what, const unsigned char *key, void *const *at,
                       struct message *message)
{
    struct header header = {.version = VERSION, .what = what, .check = description->check};
    memcpy(header.magic, MAGIC, sizeof MAGIC);
    memcpy(header.key, key, KEY_LENGTH);
    const char *wrong = measure(description, what, at, &message->length, &header.values);
    if (wrong != NULL)
        return wrong;
    message->bytes = calloc(1, message->length);
    if (message->bytes == NULL)
        return "there is no memory";
    char *to = message->bytes;
    memcpy(to, &header, sizeof header);
    to += sizeof header;
    for (size_t i = 0; i < description->count; i++) {
        const struct argument *argument = &description->arguments[i];
        size_t count = 0;
        if (!is_in(argument, what))
            continue;
        /* It was right a moment ago. */
        (void)count_of(description, i, at, &count);
        struct value value = {(uint32_t)i, (uint32_t)size_of(argument->kind), count};
        memcpy(to, &value, sizeof value);
        memcpy(to + sizeof value, at[i], count * value.size);
        to += sizeof value + padded(count * value.size);
    }
    uint64_t sum = checksum(CHECKSUM, message->bytes, message->length - sizeof sum);
    memcpy(to, &sum, sizeof sum);
    return NULL;
}

static const char *check_frame(const struct description *description, enum what what, const struct message *message,
                               struct header *header)
{
    uint64_t sum;
    if (message->length < sizeof *header + sizeof sum)
        return "it is too short";
    memcpy(header, message->bytes, sizeof *header);
    memcpy(&sum, message->bytes + message->length - sizeof sum, sizeof sum);
    if (memcmp(header->magic, MAGIC, sizeof MAGIC) != 0 || header->version != VERSION || header->what != what)
        return "it is of another kind or version";
    if (header->check != description->check)
        return "it is of a function with other arguments";
    if (checksum(CHECKSUM, message->bytes, message->length - sizeof sum) != sum)
        return "it is damaged, or not all of it is there";
    return NULL;
}

/* The values of a message where they are in it. */
struct places {
    struct value value;
    char *bytes;
};

/* Finds the values; sizes are not compared with the description yet. */
static const char *find_values(const struct description *description, enum what what, const struct message *message,
                               uint32_t values, struct places *places)
{
    char *at = message->bytes + sizeof(struct header);
    char *end = message->bytes + message->length - sizeof(uint64_t);
    for (size_t i = 0; i < description->count; i++) {
        const struct argument *argument = &description->arguments[i];
        if (!is_in(argument, what))
            continue;
        struct value *value = &places[i].value;
        if (values-- == 0 || (size_t)(end - at) < sizeof *value)
            return "it has too few values";
        memcpy(value, at, sizeof *value);
        at += sizeof *value;
        if (value->argument != i || value->size != size_of(argument->kind))
            return "a value of it has another type";
        if (value->count > MOST_VALUES / value->size || padded((size_t)value->count * value->size) > (size_t)(end - at))
            return "a value of it is too long";
        places[i].bytes = at;
        at += padded((size_t)value->count * value->size);
    }
    return values == 0 && at == end ? NULL : "it has too many values";
}

static const char *check_counts(const struct description *description, enum what what, const struct places *places,
                                void *const *at)
{
    for (size_t i = 0; i < description->count; i++) {
        const struct argument *argument = &description->arguments[i];
        size_t count;
        if (!is_in(argument, what))
            continue;
        if (argument->kind == KIND_STRING) {
            /* Its length is its own, so what is checked is that it has an end. */
            size_t length = (size_t)places[i].value.count;
            if (length == 0 || memchr(places[i].bytes, 0, length) != places[i].bytes + length - 1)
                return "a string of it has no end";
            continue;
        }
        const char *wrong = count_of(description, i, at, &count);
        if (wrong != NULL)
            return wrong;
        if (count != places[i].value.count)
            return "an array of it has another size";
    }
    return NULL;
}

const char *take_arguments(const struct description *description, unsigned char *key, const struct message *message,
                           void **at)
{
    struct header header;
    struct places places[MOST_ARGUMENTS];
    const char *wrong = check_frame(description, ARGUMENTS, message, &header);
    if (wrong == NULL)
        wrong = find_values(description, ARGUMENTS, message, header.values, places);
    if (wrong != NULL)
        return wrong;
    for (size_t i = 0; i < description->count; i++) {
        bool is = is_in(&description->arguments[i], ARGUMENTS);
        /* Sizes are read of them next. */
        if (is && is_scalar(&description->arguments[i]) && places[i].value.count != 1)
            return "a value of it has another type";
        at[i] = is ? places[i].bytes : NULL;
    }
    memcpy(key, header.key, KEY_LENGTH);
    return check_counts(description, ARGUMENTS, places, at);
}

const char *take_results(const struct description *description, const unsigned char *key,
                         const struct message *message, void *const *at)
{
    struct header header;
    struct places places[MOST_ARGUMENTS];
    const char *wrong = check_frame(description, RESULTS, message, &header);
    if (wrong != NULL)
        return wrong;
    if (memcmp(header.key, key, KEY_LENGTH) != 0)
        return "it is of another call";
    wrong = find_values(description, RESULTS, message, header.values, places);
    if (wrong == NULL)
        wrong = check_counts(description, RESULTS, places, at);
    for (size_t i = 0; wrong == NULL && i < description->count; i++) {
        if (is_in(&description->arguments[i], RESULTS))
            memcpy(at[i], places[i].bytes, (size_t)places[i].value.count * places[i].value.size);
    }
    return wrong;
}
