/* Functions of the tests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void all(char *text, int n, char c, short s, int i, long l, float f, double d, double *a, int *b, char *back, double *sum)
{
    *sum = c + s + i + (double)l + f + d;
    for (int at = 0; at < n; at++) {
        *sum += a[2 * at] * a[2 * at + 1];
        for (int k = 0; k < 3; k++)
            b[3 * at + k] = -b[3 * at + k];
        snprintf(back + 20 * at, 20, "%s %d", text, at);
    }
}

void twice(int n, long *twice)
{
    *twice = 2L * n;
}

void fill(long n, double *values)
{
    for (long i = 0; i < n; i++)
        values[i] = (double)i;
}

void nothing(void)
{
}

void wait_for(int seconds, long *pid)
{
    printf("waits\n");
    fflush(stdout);
    for (int i = 0; i < 20 * seconds; i++)
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    *pid = getpid();
}

void crash(int n)
{
    fprintf(stderr, "about to crash\n");
    if (n >= 0)
        abort();
}

void leave(int status)
{
    fprintf(stderr, "leaves with %d\n", status);
    exit(status);
}

/* Fails until it was tried so often. */
void often(char *file, int times, int *tries)
{
    FILE *it = fopen(file, "a+");
    if (it == NULL || fputc('x', it) == EOF || fflush(it) != 0)
        exit(70);
    rewind(it);
    for (*tries = 0; fgetc(it) == 'x';)
        ++*tries;
    fclose(it);
    if (*tries < times)
        exit(71);
}
