// A stand-in for DMTCP's client, where DMTCP itself is not: it speaks the protocol of DMTCP's coordinator as a worker does, and its
// image holds one count. Called dmtcp_launch: [OPTION...] FILE, to which it writes how far it is, and dmtcp_restart:
// [OPTION...] IMAGE... Options: --coord-host, --coord-port, --ckptdir with their values; others are ignored.
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct identity {
    uint64_t host, time;
    int32_t pid, generation;
};

struct message {
    char magic[16], name[64];
    uint64_t store_code;
    uint32_t size, extra, type, state;
    struct identity from, group;
    int32_t virtual_pid, real_pid;
    uint32_t key_length, value_length, peers, is_running, command, command_status;
    uint64_t time_stamp;
    int32_t interval;
    uint32_t address, id_offset, exit_after;
};
_Static_assert(sizeof(struct message) == 208, "the protocol's size");

enum { NEW = 1, RESTART = 3, ACCEPT = 4, EXEC = 10, IMAGE = 14, CHECKPOINT = 18, BARRIER, RELEASED, RESUMING, KILL };
enum { UNKNOWN, RUNNING, PRESUSPEND, SUSPENDED, CHECKPOINTING, CHECKPOINTED, RESTARTING };

// All that an image holds.
struct image {
    struct identity own, group;
    uint32_t peers, count;
    char out[256], folder[256];
};

static struct image self;
static int coordinator;
static char host[64];

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void say(uint32_t type, uint32_t state, const char *name, const void *payload, uint32_t length)
{
    struct message message = {.magic = "DMTCP_CKPT_V0\n", .size = sizeof message, .type = type, .state = state};
    strncpy(message.name, name, sizeof message.name - 1);
    message.extra = length;
    message.from = self.own;
    message.real_pid = getpid();
    message.virtual_pid = type == NEW ? -1 : self.own.pid;
    message.interval = -1;
    if (type == RESTART)
        message.group = self.group, message.peers = self.peers;
    char bytes[sizeof message + 1024];
    memcpy(bytes, &message, sizeof message);
    memcpy(bytes + sizeof message, payload, length);
    if (send(coordinator, bytes, sizeof message + length, MSG_NOSIGNAL) != (ssize_t)(sizeof message + length))
        exit(99);
}

// The next message; the coordinator's end is the worker's, as with DMTCP.
static struct message hear(void)
{
    struct message message;
    char rest[4096];
    if (recv(coordinator, &message, sizeof message, MSG_WAITALL) != sizeof message || message.extra > sizeof rest)
        exit(99);
    if (message.extra > 0 && recv(coordinator, rest, message.extra, MSG_WAITALL) != (ssize_t)message.extra)
        exit(99);
    if (message.type == KILL)
        exit(0);
    return message;
}

static struct message barrier(const char *name, uint32_t state)
{
    say(BARRIER, state, name, "", 0);
    struct message message = hear();
    if (message.type != RELEASED || strcmp(message.name, name) != 0)
        fail("another message than the barrier's");
    return message;
}

static void checkpoint(struct identity group)
{
    char path[700], draft[720], payload[1024];
    self.group = group;
    barrier("DMT:SUSPEND", PRESUSPEND);
    self.peers = barrier("DMT:CHECKPOINT", SUSPENDED).peers;
    barrier("Socket::Ckpt_Register_Peer_Info", CHECKPOINTING);
    int ends = barrier("DMT:WriteCkpt", CHECKPOINTED).exit_after;
    snprintf(path, sizeof path, "%s/ckpt_worker_%lx-%d-%lx.dmtcp", self.folder, (long)self.own.host, self.own.pid,
             (long)self.own.time);
    snprintf(draft, sizeof draft, "%s.temp", path);
    int file = open(draft, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || write(file, &self, sizeof self) != sizeof self || close(file) || rename(draft, path))
        fail(path);
    int length = snprintf(payload, sizeof payload, "%s%c%c%s", path, 0, 0, host) + 1;
    say(IMAGE, CHECKPOINTED, "", payload, length);
    if (ends)
        exit(0);
    say(RESUMING, RUNNING, "", "", 0);
}

static void greet(uint32_t type, uint32_t state)
{
    char payload[128];
    int length = snprintf(payload, sizeof payload, "%s%cworker", host, 0) + 1;
    say(type, state, "", payload, length);
    struct message message = hear();
    if (message.type != ACCEPT) {
        fprintf(stderr, "refused: %u\n", message.type);
        exit(1);
    }
    if (type == NEW) {
        self.own.pid = message.virtual_pid;
        self.group = message.group;
    }
}

static void work(void)
{
    FILE *out = fopen(self.out, "a");
    if (out == NULL)
        fail(self.out);
    for (;;) {
        struct pollfd ready = {.fd = coordinator, .events = POLLIN};
        if (poll(&ready, 1, 100) == 0) {
            fprintf(out, "%s %u\n", host, ++self.count);
            fflush(out);
            continue;
        }
        struct message message = hear();
        if (message.type == CHECKPOINT)
            checkpoint(message.group);
    }
}

int main(int count, char **arguments)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(7779)};
    inet_pton(AF_INET, "127.0.0.1", &at.sin_addr);
    const char *folder = NULL;
    int next = 1;
    gethostname(host, sizeof host);
    for (; next < count && arguments[next][0] == '-'; next++) {
        if (strcmp(arguments[next], "--coord-host") == 0)
            inet_pton(AF_INET, arguments[++next], &at.sin_addr);
        else if (strcmp(arguments[next], "--coord-port") == 0)
            at.sin_port = htons(atoi(arguments[++next]));
        else if (strcmp(arguments[next], "--ckptdir") == 0)
            folder = arguments[++next];
    }
    if (next >= count)
        return 2;
    int restarts = strstr(arguments[0], "dmtcp_restart") != NULL;
    // One process for each image.
    for (; restarts && next + 1 < count; next++)
        if (fork() == 0) {
            count = next + 1;
            break;
        }
    if (restarts) {
        int file = open(arguments[next], O_RDONLY);
        if (file < 0 || read(file, &self, sizeof self) != sizeof self)
            fail(arguments[next]);
        close(file);
    } else {
        strncpy(self.out, arguments[next], sizeof self.out - 1);
        self.own.host = 0xd0 + host[strlen(host) - 1];
        self.own.time = time(NULL) * 1000 + getpid();
    }
    if (folder != NULL)
        strncpy(self.folder, folder, sizeof self.folder - 1);
    coordinator = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(coordinator, (struct sockaddr *)&at, sizeof at))
        fail("connect to the coordinator");
    greet(restarts ? RESTART : NEW, restarts ? RESTARTING : UNKNOWN);
    if (restarts) {
        barrier("DMT:Restart", RESTARTING);
        barrier("Socket::Restart_Ns_Register_Data", RESTARTING);
        say(RESUMING, RUNNING, "", "", 0);
    } else {
        say(EXEC, RUNNING, "", "worker", 7);
    }
    work();
}
