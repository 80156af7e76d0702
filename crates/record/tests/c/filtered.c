/* Installs the system-call filter that the arguments select, and then allocates.
 *
 *   filtered ACTION INSTALL WHERE
 *
 * ACTION: kill, errno, trap (a handler counts the traps), strict (mode 1: read, write, exit).
 * INSTALL: prctl, seccomp, twice.
 * WHERE selects what allocates: same (the process itself), fork (also the child), thread (a thread that started before
 * the filter), new-thread (a thread that starts after it), exec (another program), or much (the process itself, ten
 * million calls with pauses).
 * The filter allows only the system calls that the program itself needs, none that only a recorder needs.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAIRS 100000

static volatile int go;
static volatile int trapped;

static void trap(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info, (void)context;
    trapped++;
}

static void allocate(size_t bytes, int pairs) {
    for (int i = 0; i < pairs; i++) {
        void *block = malloc(bytes);
        if (!block) {
            static const char text[] = "no memory\n";
            if (write(2, text, sizeof text - 1)) {}
            syscall(SYS_exit, 3);
        }
        free(block);
    }
}

static void *work(void *unused) {
    while (!go) {
    }
    allocate(606, PAIRS);
    return unused;
}

#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

static int install(const char *action, int by_prctl, int threads) {
    unsigned refuse = !strcmp(action, "kill") ? SECCOMP_RET_KILL_PROCESS
                      : !strcmp(action, "errno") ? SECCOMP_RET_ERRNO | EPERM : SECCOMP_RET_TRAP;
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(write), ALLOW(brk), ALLOW(exit_group), ALLOW(exit), ALLOW(mprotect), ALLOW(munmap),
        ALLOW(futex), ALLOW(wait4), ALLOW(clone), ALLOW(clone3), ALLOW(set_robust_list), ALLOW(rseq),
        ALLOW(rt_sigreturn), ALLOW(execve), ALLOW(seccomp), ALLOW(prctl), ALLOW(read), ALLOW(close),
        ALLOW(pread64), ALLOW(arch_prctl), ALLOW(set_tid_address), ALLOW(getrandom), ALLOW(access),
        ALLOW(newfstatat), ALLOW(prlimit64), ALLOW(rt_sigaction),
        /* Anonymous mappings. The recorder maps files. */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mmap, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 1 /* MAP_SHARED */, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        /* Opening files for reading, which the dynamic linker needs. */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, 3 /* O_ACCMODE */, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        /* A thread that ends releases its stack. */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 4 /* MADV_DONTNEED */, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        /* Threads begin and end with signals blocked. */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, threads ? SYS_rt_sigprocmask : SYS_write, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, refuse),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    /* Programs make this call to check whether filters are supported; the kernel refuses it. */
    if (!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) || errno != EFAULT) return -2;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return -1;
    if (by_prctl) return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program);
}

static int forked(void) {
    pid_t child = fork();
    if (!child) {
        allocate(707, PAIRS);
        _exit(trapped ? 9 : 7);
    }
    int status;
    return wait4(child, &status, 0, NULL) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

int main(int count, char **words) {
    if (count != 4) return 2;
    const char *action = words[1], *how = words[2], *where = words[3];
    int begins = !strcmp(where, "new-thread"), waits = !strcmp(where, "thread");
    struct sigaction catch = {.sa_sigaction = trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGSYS, &catch, NULL);
    allocate(404, 10);
    pthread_t thread;
    if (waits) pthread_create(&thread, NULL, work, NULL);
    int failed = 0;
    if (!strcmp(action, "strict")) failed = prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
    else failed = install(action, !strcmp(how, "prctl"), begins || waits);
    if (!failed && !strcmp(how, "twice")) failed = install(action, 1, begins || waits);
    if (failed) return 4;
    allocate(505, PAIRS);
    for (int i = 1; i < 50 && !strcmp(where, "much"); i++) {
        struct timespec rest = {0, 40000000};
        syscall(SYS_futex, &go, FUTEX_WAIT, 0, &rest);
        allocate(505, PAIRS);
    }
    go = 1;
    if (begins) pthread_create(&thread, NULL, work, NULL);
    if (begins || waits) pthread_join(thread, NULL);
    if (!strcmp(where, "fork") && forked() != 7) return 5;
    if (!strcmp(where, "exec")) execl("/proc/self/exe", "filtered", "-", NULL);
    syscall(SYS_exit, trapped ? 6 : 0);
}
