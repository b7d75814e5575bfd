/* The program of the images in this folder: small, without any library, and with one of each thing that is simple. It says "ready",
 * waits for a byte on its standard input, looks whether everything is as it was, and says "kept". Its file may be removed once it
 * runs: then its image has all that it needs.
 *
 *     cc -Os -static -nostdlib -ffreestanding -fno-stack-protector -fno-builtin -o keeper keeper.c
 */
#include <asm/unistd.h>

#define AF_UNIX 1
#define SOCK_STREAM 1
#define PROT_READ_WRITE 3
#define PRIVATE 2
#define SHARED 1
#define SIGCHLD 17

#if defined __x86_64__
static long call(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#elif defined __aarch64__
static long call(long number, long a, long b, long c, long d, long e, long f)
{
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
}
#endif

enum { PAGES = 16, PAGE = 4096 };

static unsigned char own[PAGES * PAGE];

static void say(const char *text)
{
    long length = 0;
    while (text[length])
        length++;
    call(__NR_write, 1, (long)text, length, 0, 0, 0);
}

/* Names what is wrong, and ends. */
static void check(int right, const char *what)
{
    if (right)
        return;
    say("wrong: ");
    say(what);
    say("\n");
    call(__NR_exit_group, 1, 0, 0, 0, 0, 0);
}

/* Little repeats itself in it, as in a program's memory; so little of it is stored as is possible. */
static void fill(unsigned char *at, unsigned seed)
{
    for (int i = 0; i < PAGES; i++)
        at[i * PAGE + i * 7] = (unsigned char)(seed + i * 31 + 1);
}

static int is_filled(const unsigned char *at, unsigned seed)
{
    for (int i = 0; i < PAGES; i++)
        for (int j = 0; j < PAGE; j++)
            if (at[i * PAGE + j] != (j == i * 7 ? (unsigned char)(seed + i * 31 + 1) : 0))
                return 0;
    return 1;
}

/* What five bytes that are read from somewhere are. */
static int has(int fd, const char *wanted)
{
    char found[8] = {0};
    if (call(__NR_read, fd, (long)found, 5, 0, 0, 0) != 5)
        return 0;
    for (int i = 0; i < 5; i++)
        if (found[i] != wanted[i])
            return 0;
    return 1;
}

/* A child that passes one byte on, and ends with it. */
static void child(int from, int to)
{
    unsigned char byte = 0;
    call(__NR_read, from, (long)&byte, 1, 0, 0, 0);
    byte++;
    call(__NR_write, to, (long)&byte, 1, 0, 0, 0);
    call(__NR_exit_group, byte, 0, 0, 0, 0, 0);
}

__attribute__((used, noreturn)) void keep(void)
{
    int pipe[2], there[2], back[2], pair[2];
    unsigned long long count = 5;
    check(call(__NR_pipe2, (long)pipe, 0, 0, 0, 0, 0) == 0, "a pipe");
    check(call(__NR_pipe2, (long)there, 0, 0, 0, 0, 0) == 0, "a pipe to the child");
    check(call(__NR_pipe2, (long)back, 0, 0, 0, 0, 0) == 0, "a pipe from the child");
    check(call(__NR_socketpair, AF_UNIX, SOCK_STREAM, 0, (long)pair, 0, 0) == 0, "a pair of sockets");
    int file = (int)call(__NR_memfd_create, (long)"kept", 0, 0, 0, 0, 0);
    check(file >= 0, "a file in memory");
    int event = (int)call(__NR_eventfd2, 0, 0, 0, 0, 0, 0);
    check(event >= 0, "an eventfd");
    unsigned char *shared = (unsigned char *)call(__NR_mmap, 0, PAGES * PAGE, PROT_READ_WRITE, SHARED | 0x20, -1, 0);
    check((long)shared > 0 || (unsigned long)shared < -4096ul, "shared memory");
    fill(own, 3);
    fill(shared, 11);
    call(__NR_write, pipe[1], (long)"piped", 5, 0, 0, 0);
    call(__NR_write, pair[0], (long)"there", 5, 0, 0, 0);
    call(__NR_write, pair[1], (long)"again", 5, 0, 0, 0);
    call(__NR_write, file, (long)"a file", 6, 0, 0, 0);
    call(__NR_write, event, (long)&count, 8, 0, 0, 0);
    long number = call(__NR_clone, SIGCHLD, 0, 0, 0, 0, 0);
    if (number == 0)
        child(there[0], back[1]);
    check(number > 0, "a child");
    long me = call(__NR_getpid, 0, 0, 0, 0, 0, 0);
    say("ready\n");

    unsigned char byte = 0;
    check(call(__NR_read, 0, (long)&byte, 1, 0, 0, 0) == 1, "standard input");
    check(call(__NR_getpid, 0, 0, 0, 0, 0, 0) == me, "its number");
    check(is_filled(own, 3), "its memory");
    check(is_filled(shared, 11), "shared memory");
    check(has(pipe[0], "piped"), "what was in the pipe");
    check(has(pair[1], "there"), "what was in one socket");
    check(has(pair[0], "again"), "what was in the other");
    check(call(__NR_lseek, file, 0, 1, 0, 0, 0) == 6, "where it is in the file");
    check(call(__NR_lseek, file, 1, 0, 0, 0, 0) == 1 && has(file, " file"), "the file");
    check(call(__NR_read, event, (long)&count, 8, 0, 0, 0) == 8 && count == 5, "the eventfd");
    byte = 41;
    call(__NR_write, there[1], (long)&byte, 1, 0, 0, 0);
    check(call(__NR_read, back[0], (long)&byte, 1, 0, 0, 0) == 1 && byte == 42, "what the child says");
    int status = 0;
    check(call(__NR_wait4, number, (long)&status, 0, 0, 0, 0) == number && status == 42 << 8, "how the child ends");
    say("kept\n");
    call(__NR_exit_group, 0, 0, 0, 0, 0, 0);
    __builtin_unreachable();
}

/* The stack is where the kernel puts it: at a multiple of 16. */
#if defined __x86_64__
__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n and $-16, %rsp\n call keep\n");
#elif defined __aarch64__
__asm__(".globl _start\n_start:\n mov x29, #0\n mov x30, #0\n bl keep\n");
#endif
