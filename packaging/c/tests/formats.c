/* What is read of files and answers is never trusted: each is damaged at many places, and nothing else is read or
   written. */
#include <stdint.h>

#include "../src/json.h"
#include "../src/message.h"
#include "check.h"

#define ROUNDS 200000

static uint64_t state = 1;

static uint64_t any(uint64_t below)
{
    state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (state >> 33) % below;
}

/* Changes, cuts or repeats something; the length. */
static size_t damage(char *bytes, size_t length)
{
    for (uint64_t times = 1 + any(3); times > 0 && length > 0; times--) {
        size_t at = any(length);
        switch (any(4)) {
        case 0:
            bytes[at] = (char)any(256);
            break;
        case 1:
            bytes[at] ^= (char)(1 << any(8));
            break;
        case 2:
            length = at;
            break;
        default:
            memmove(bytes + at, bytes, length - at);
        }
    }
    return length;
}

/* A copy that is damaged, with nothing behind it but a NUL. */
static char *damaged(const char *bytes, size_t *length)
{
    char *room = malloc(*length + 1);
    CHECK(room != NULL);
    memcpy(room, bytes, *length);
    *length = damage(room, *length);
    room[*length] = '\0';
    char *copy = malloc(*length + 1);
    CHECK(copy != NULL);
    memcpy(copy, room, *length + 1);
    free(room);
    return copy;
}

static const char FUNCTION[] = "ckptd function 1\nname t/f\nprogram /bin/true\nargument in int n\nargument in string s\n"
                               "argument inout double a n 2\nargument out char b 20\nend\n";
static const char ANSWER[] = "[{\"name\": \"f\", \"a\\\"b\": {\"x\": [1, 2, {}]}, \"results\": \"/a\\\\b\", \"task\": 12},\n"
                             " {\"status\": {\"running\": [], \"stuck\": [3, 4], \"jobs\": 2}, \"z\": null}]";

/* Sums of a message are made right again, so that what is behind them is looked at. */
static void sum_up(struct message *message)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);
    if (message->length < 56)
        return;
    for (size_t i = 0; i < message->length - 8; i++)
        sum = (sum ^ (unsigned char)message->bytes[i]) * UINT64_C(0x100000001b3);
    memcpy(message->bytes + message->length - 8, &sum, 8);
}

static void messages(void)
{
    struct description description;
    char *text = strdup(FUNCTION);
    unsigned char key[KEY_LENGTH] = "0123456789abcde", found[KEY_LENGTH];
    int n = 2;
    double a[4] = {1, 2, 3, 4};
    char b[20] = "b", s[] = "string";
    void *at[MOST_ARGUMENTS] = {&n, s, a, b};
    struct message right[2];
    int taken = 0;
    CHECK(describe(text, &description) == NULL && description.count == 4);
    CHECK(message_of(&description, ARGUMENTS, key, at, &right[0]) == NULL);
    CHECK(message_of(&description, RESULTS, key, at, &right[1]) == NULL);
    for (int i = 0; i < ROUNDS; i++) {
        struct message message = right[i % 2];
        message.bytes = damaged(message.bytes, &message.length);
        void *places[MOST_ARGUMENTS];
        if (i % 4 < 2)
            sum_up(&message);
        if (i % 2 == 0) {
            taken += take_arguments(&description, found, &message, places) == NULL;
        } else {
            taken += take_results(&description, key, &message, at) == NULL;
        }
        free(message.bytes);
    }
    /* Values themselves may be any. */
    CHECK(taken > 0 && n == 2);
    for (int i = 0; i < 2; i++)
        free(right[i].bytes);
    free(description.program);
    free(text);
}

static void texts(void)
{
    struct description description;
    int right = 0;
    for (int i = 0; i < ROUNDS; i++) {
        size_t length = sizeof FUNCTION - 1;
        char *text = damaged(FUNCTION, &length);
        description.program = NULL;
        if (describe(text, &description) == NULL)
            right++;
        free(description.program);
        free(text);
        length = sizeof ANSWER - 1;
        text = damaged(ANSWER, &length);
        for (const char *one = json_first(text); one != NULL; one = json_next(one)) {
            free(json_string(json_member(one, "results")));
            const char *stuck = json_first(json_member(json_member(one, "status"), "stuck"));
            for (; stuck != NULL; stuck = json_next(stuck))
                CHECK(json_number(stuck) >= -1);
        }
        free(text);
    }
    CHECK(right > 0 && right < ROUNDS);
}

int main(void)
{
    const char *one = json_first(ANSWER), *two = json_next(one);
    char *results = json_string(json_member(one, "results"));
    CHECK(json_is(json_member(one, "name"), "f") && strcmp(results, "/a\\b") == 0);
    CHECK(json_number(json_member(one, "task")) == 12 && json_member(one, "x") == NULL);
    const char *stuck = json_first(json_member(json_member(two, "status"), "stuck"));
    CHECK(json_number(stuck) == 3 && json_number(json_next(stuck)) == 4 && json_next(json_next(stuck)) == NULL);
    free(results);
    messages();
    texts();
    puts("right");
    return 0;
}
