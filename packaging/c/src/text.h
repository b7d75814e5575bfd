/* Bytes and files. */
#ifndef CKPTD_TEXT_H
#define CKPTD_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The checksum of nothing. */
#define CHECKSUM UINT64_C(0xcbf29ce484222325)
/* FNV-1a: it tells what is torn or foreign, not what is forged. */
uint64_t checksum(uint64_t before, const void *bytes, size_t length);

/* A text made like printf; NULL without memory. */
char *text_of(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Reads a file of at most so many bytes; a NUL follows them. NULL: errno tells why not; EFBIG for a larger one. */
char *read_whole(const char *path, size_t most, size_t *length);
/* Writes a file that only its owner can read: under another name first, so that whoever finds it finds all of it,
   also where several processes write it. */
bool write_whole(const char *folder, const char *name, const void *bytes, size_t length);
bool write_all(int descriptor, const void *bytes, size_t length);

#endif
