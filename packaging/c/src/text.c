#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

uint64_t checksum(uint64_t sum, const void *bytes, size_t length)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < length; i++)
        sum = (sum ^ at[i]) * UINT64_C(0x100000001b3);
    return sum;
}

char *text_of(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    int length = vsnprintf(NULL, 0, format, list);
    va_end(list);
    char *text = length < 0 ? NULL : malloc((size_t)length + 1);
    if (text != NULL) {
        va_start(list, format);
        vsnprintf(text, (size_t)length + 1, format, list);
        va_end(list);
    }
    return text;
}

static char *read_open(int file, size_t most, size_t *length)
{
    struct stat found;
    if (fstat(file, &found) != 0)
        return NULL;
    if (!S_ISREG(found.st_mode) || found.st_size < 0 || (uintmax_t)found.st_size > most) {
        errno = EFBIG;
        return NULL;
    }
    size_t size = (size_t)found.st_size;
    char *bytes = malloc(size + 1);
    for (*length = 0; bytes != NULL && *length < size;) {
        ssize_t got = read(file, bytes + *length, size - *length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            free(bytes);
            return NULL;
        }
        if (got == 0)
            break;
        *length += (size_t)got;
    }
    if (bytes != NULL)
        bytes[*length] = '\0';
    return bytes;
}

char *read_whole(const char *path, size_t most, size_t *length)
{
    /* Nobody's pipe or device keeps this waiting. */
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (file < 0)
        return NULL;
    char *bytes = read_open(file, most, length);
    int error = errno;
    close(file);
    errno = error;
    return bytes;
}

bool write_all(int descriptor, const void *bytes, size_t length)
{
    const char *at = bytes;
    while (length > 0) {
        ssize_t put = write(descriptor, at, length);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        at += put;
        length -= (size_t)put;
    }
    return true;
}

bool write_whole(const char *folder, const char *name, const void *bytes, size_t length)
{
    char *path = text_of("%s/%s", folder, name), *new = text_of("%s/%s.%ld.new", folder, name, (long)getpid());
    bool done = false;
    if (path != NULL && new != NULL) {
        int file = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        done = file >= 0 && write_all(file, bytes, length);
        /* A full disk may be told only now. */
        if (file >= 0 && close(file) != 0)
            done = false;
        done = done && rename(new, path) == 0;
    }
    free(path);
    free(new);
    return done;
}
