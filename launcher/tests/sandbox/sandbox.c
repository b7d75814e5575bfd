// Runs a program as Android's app sandbox does: as an app's user, without new privileges, under a filter that kills for
// what Android forbids.
//
//     sandbox VERSION LIBC COMMAND...
//
// VERSION is Android's: 11 to 15. LIBC is musl, or glibc: that one makes calls when it begins which the sandbox forbids,
// and which are answered by ENOSYS for it instead. The list is what bionic's SYSCALLS.TXT and its SECCOMP
// files make of the tag android-VERSION.0.0_r1, as far as ckptd is concerned; what SELinux and the kernels' configuration
// forbid is answered by an error, as there.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined __x86_64__
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined __i386__
#define ARCHITECTURE AUDIT_ARCH_I386
#elif defined __aarch64__
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#elif defined __arm__
#define ARCHITECTURE AUDIT_ARCH_ARM
#endif

// The first app of the first user.
#define APP 10000

// Where the lower half of an argument is, on little-endian machines.
#define ARGUMENT(number) (offsetof(struct seccomp_data, args) + 8 * (number))

#define ANSWER(number, answer)                                                                                          \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, (answer))

static void fail(const char *what) {
    fprintf(stderr, "sandbox: %s: %s\n", what, strerror(errno));
    exit(120);
}

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: sandbox VERSION LIBC COMMAND...\n");
        return 120;
    }
    int version = atoi(argv[1]);
    unsigned trap = SECCOMP_RET_TRAP;
    unsigned begin = strcmp(argv[2], "glibc") == 0 ? SECCOMP_RET_ERRNO | ENOSYS : trap;
    unsigned allow = SECCOMP_RET_ALLOW;
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, trap),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ANSWER(SYS_kcmp, trap),
        ANSWER(SYS_rseq, begin),
        ANSWER(SYS_set_robust_list, begin),
        ANSWER(SYS_get_robust_list, trap),
        ANSWER(SYS_pidfd_getfd, version >= 12 ? allow : trap),
        ANSWER(SYS_pidfd_send_signal, version >= 12 ? allow : trap),
        ANSWER(SYS_close_range, version >= 13 ? allow : trap),
        ANSWER(SYS_clone3, version >= 15 ? allow : trap),
        ANSWER(SYS_fanotify_init, trap),
        ANSWER(SYS_mount, trap),
        ANSWER(SYS_sethostname, trap),
        ANSWER(SYS_setgroups, trap),
        ANSWER(SYS_setfsuid, trap),
        ANSWER(SYS_setfsgid, trap),
        ANSWER(SYS_setresgid, trap),
#ifdef SYS_shmctl
        ANSWER(SYS_shmctl, trap),
        ANSWER(SYS_semctl, trap),
        ANSWER(SYS_msgctl, trap),
#endif
        // SELinux.
        ANSWER(SYS_userfaultfd, SECCOMP_RET_ERRNO | EACCES),
        // No user or PID namespaces in the kernel.
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_unshare, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(0)),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_NEWUSER | CLONE_NEWPID, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, allow),
#ifdef SYS_socket
        // Nobody but root has netlink_tcpdiag_socket: not apps, not adb's shell (private/app.te).
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(0)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, ARGUMENT(2)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NETLINK_SOCK_DIAG, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
#endif
        BPF_STMT(BPF_RET | BPF_K, allow),
    };
    struct sock_fprog filter = {.len = sizeof program / sizeof *program, .filter = program};
    if (getuid() == 0 && (setgid(APP) != 0 || setuid(APP) != 0))
        fail("become an app");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        fail("give up privileges");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        fail("set the filter");
    execv(argv[3], argv + 3);
    fail(argv[3]);
}
