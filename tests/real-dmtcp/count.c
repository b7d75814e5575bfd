// Counts, in a way that notices what is lost: count MODE STOP, with the mode "single", "threads", "pair" (two processes and
// a TCP connection between them), "server PORT" or "client HOST PORT" (the same on two machines). Each tenth of a second or so it
// says how far it is. It ends with "right" when the file STOP is there; with a status other than 0 when a count is wrong.
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 4

static const char *stop;

static int over(void) { return access(stop, F_OK) == 0; }

static void fail(const char *what)
{
    printf("wrong: %s\n", what);
    exit(3);
}

static void single(void)
{
    volatile unsigned long up = 0, down = 0;
    for (unsigned n = 1; !over(); n++) {
        up++, down--;
        usleep(10000);
        if (up + down != 0 || up != n)
            fail("a count");
        if (n % 10 == 0)
            printf("at %u\n", n);
    }
}

static pthread_barrier_t meet;
static volatile unsigned counts[THREADS];
static volatile int ends;

static void *thread(void *argument)
{
    int own = (int)(long)argument;
    for (;;) {
        counts[own]++;
        usleep(5000);
        pthread_barrier_wait(&meet);
        for (int other = 0; other < THREADS; other++)
            if (counts[other] != counts[own])
                fail("a thread's count");
        if (own == 0)
            ends = over();
        pthread_barrier_wait(&meet);
        if (ends)
            return NULL;
        if (own == 0 && counts[0] % 10 == 0)
            printf("at %u\n", counts[0]);
    }
}

static void threads(void)
{
    pthread_t all[THREADS];
    pthread_barrier_init(&meet, NULL, THREADS);
    for (long own = 0; own < THREADS; own++)
        pthread_create(&all[own], NULL, thread, (void *)own);
    for (int own = 0; own < THREADS; own++)
        pthread_join(all[own], NULL);
}

// Each side adds one and sends it back; 0 ends it.
static void server(int listening)
{
    int peer = accept(listening, NULL, NULL);
    unsigned expected = 1, got;
    while (recv(peer, &got, 4, MSG_WAITALL) == 4 && got != 0) {
        if (got != expected)
            fail("what came");
        got++;
        expected += 2;
        if (send(peer, &got, 4, 0) != 4)
            fail("sending");
    }
    if (got != 0)
        fail("the connection is gone");
}

static int listener(unsigned short port)
{
    int one = 1, made = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(made, (struct sockaddr *)&at, sizeof at) || listen(made, 1))
        fail("listening");
    return made;
}

static void client(const char *host, unsigned short port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    inet_pton(AF_INET, host, &to.sin_addr);
    int peer = socket(AF_INET, SOCK_STREAM, 0);
    while (connect(peer, (struct sockaddr *)&to, sizeof to)) {
        close(peer);
        usleep(50000);
        peer = socket(AF_INET, SOCK_STREAM, 0);
    }
    for (unsigned next = 1;; next++) {
        unsigned sent = over() ? 0 : next, got;
        if (send(peer, &sent, 4, 0) != 4)
            fail("sending");
        if (sent == 0)
            return;
        if (recv(peer, &got, 4, MSG_WAITALL) != 4 || got != next + 1)
            fail("what came back");
        next++;
        usleep(5000);
        if (next % 20 == 0)
            printf("at %u\n", next);
    }
}

int main(int count, char **arguments)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count < 3)
        return 2;
    const char *mode = arguments[1];
    stop = arguments[2];
    if (strcmp(mode, "single") == 0) {
        single();
    } else if (strcmp(mode, "threads") == 0) {
        threads();
    } else if (strcmp(mode, "server") == 0 && count > 3) {
        server(listener(atoi(arguments[3])));
    } else if (strcmp(mode, "client") == 0 && count > 4) {
        client(arguments[3], atoi(arguments[4]));
    } else if (strcmp(mode, "pair") == 0) {
        int listening = listener(0), status = 1;
        struct sockaddr_in at;
        socklen_t length = sizeof at;
        getsockname(listening, (struct sockaddr *)&at, &length);
        pid_t child = fork();
        if (child == 0) {
            close(listening);
            client("127.0.0.1", ntohs(at.sin_port));
            return 0;
        }
        server(listening);
        waitpid(child, &status, 0);
        if (status != 0)
            fail("the child");
    } else {
        return 2;
    }
    printf("right\n");
    return 0;
}
