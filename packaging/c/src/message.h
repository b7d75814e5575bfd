/*
 * The file of a call's arguments, and that of its results, in this machine's byte order:
 *
 *     "CKPTDRPC", version u32 = 1, what u32 (1 arguments, 2 results), checksum of the description u64, key of the call
 *     16 bytes, number of values u32, 0 u32; of each value: number of the argument u32, size of an element u32, number
 *     of elements u64, the elements, zeros up to a multiple of 8; checksum of all that u64
 *
 * Arguments have what goes in, results what comes out.
 */
#ifndef CKPTD_MESSAGE_H
#define CKPTD_MESSAGE_H

#include "describe.h"

#define KEY_LENGTH 16
enum what { ARGUMENTS = 1, RESULTS = 2 };

struct message {
    char *bytes;
    size_t length;
};

/* Writes values down; NULL, or what is wrong. */
const char *message_of(const struct description *description, enum what what, const unsigned char *key, void *const *at,
                       struct message *message);

/*
 * Takes values out of a file; NULL, or what is wrong with it. Nothing is taken unless all is right. Of arguments, at[]
 * is made to be in the message, and key is filled in; of results, what at[] points to is written, and key has to be the
 * file's.
 */
const char *take_arguments(const struct description *description, unsigned char *key, const struct message *message,
                           void **at);
const char *take_results(const struct description *description, const unsigned char *key,
                         const struct message *message, void *const *at);

#endif
