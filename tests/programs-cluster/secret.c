/*
 * Holds a secret in its memory, its arguments, its environment and an open file; says so when it holds it, and at its end
 * whether it still does.
 *
 *     SECRET=DIGITS secret DIGITS FILE        DIGITS: 64 hexadecimal ones; FILE begins with them, too
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LENGTH (8 << 20)
#define EVERY (32 << 10)
#define BYTES 32

static unsigned char memory[LENGTH];

static void must(int holds, const char *what) {
    if (!holds) {
        printf("secret: %s\n", what);
        exit(1);
    }
}

/* Noise can't be compressed: what is in it lies on the disk as it is. */
static void fill(const unsigned char *secret) {
    int noise = open("/dev/urandom", O_RDONLY);
    for (size_t at = 0; at < LENGTH;) {
        ssize_t count = read(noise, memory + at, LENGTH - at);
        must(count > 0, "no noise");
        at += (size_t)count;
    }
    close(noise);
    for (size_t at = 1000; at + BYTES <= LENGTH; at += EVERY)
        memcpy(memory + at, secret, BYTES);
}

int main(int argc, char **argv) {
    must(argc == 3 && strlen(argv[1]) == 2 * BYTES, "wrong usage");
    unsigned char secret[BYTES];
    for (int byte = 0; byte < BYTES; byte++)
        must(sscanf(argv[1] + 2 * byte, "%2hhx", secret + byte) == 1, "no digits");
    int file = open(argv[2], O_RDONLY);
    must(file >= 0, "no file");
    fill(secret);
    printf("started\n");
    fflush(stdout);
    while (access("/mnt/shared/end", F_OK) != 0)
        usleep(50000);
    for (size_t at = 1000; at + BYTES <= LENGTH; at += EVERY)
        must(memcmp(memory + at, secret, BYTES) == 0, "the memory is another");
    const char *variable = getenv("SECRET");
    must(variable && strcmp(variable, argv[1]) == 0, "the environment is another");
    char start[2 * BYTES];
    must(pread(file, start, sizeof start, 0) == (ssize_t)sizeof start, "the file can't be read");
    must(memcmp(start, argv[1], sizeof start) == 0, "the file is another");
    printf("secret: right\n");
    return 0;
}
