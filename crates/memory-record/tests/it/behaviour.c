// Programs that check by themselves that a tracer changes nothing. The exit status is 0 if all is as it should be.

#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "line %d: %s (errno %d)\n", __LINE__, #condition, errno); \
            exit(1); \
        } \
    } while (0)

extern char **environ;
static const char *self;

static void *map(size_t bytes) {
    void *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(at != MAP_FAILED);
    return at;
}

static void *churn(void *rounds) {
    for (long round = 0; round != (long)rounds; round++) {
        char *at = map(65536);
        at[4096] = 1;
        CHECK(at[4096] == 1 && at[0] == 0);
        CHECK(munmap(at, 65536) == 0);
    }
    return 0;
}

static volatile sig_atomic_t alarms, queued;
static void on_alarm(int signal) { alarms += signal == SIGALRM; }
static void on_queued(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    queued += info->si_value.sival_int;
}

// Signals arrive between and within memory calls, with their values, and interrupt calls that wait.
static void signals(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    CHECK(sigaction(SIGALRM, &action, 0) == 0);
    struct sigaction with_value = {.sa_sigaction = on_queued, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGUSR1, &with_value, 0) == 0);
    struct itimerval every = {{0, 300}, {0, 300}};
    CHECK(setitimer(ITIMER_REAL, &every, 0) == 0);
    while (alarms < 200) churn((void *)10);
    CHECK(sleep(100) > 0 && alarms > 200);
    every = (struct itimerval){{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &every, 0) == 0);
    for (int sent = 0; sent < 50; sent++) CHECK(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = sent}) == 0);
    CHECK(queued == 49 * 50 / 2);
}

// A stopped child stays stopped until SIGCONT, and its parent sees both.
static void stops(void) {
    // A stop soon after SIGCONT would hide that the child was continued.
    int status, seen[2];
    char byte = 0;
    volatile int *resumed = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(pipe(seen) == 0 && resumed != MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        // The kernel ignores SIGTSTP in a process group that no parent outside it can continue, as after a shell's exit.
        CHECK(setpgid(0, 0) == 0);
        churn((void *)10);
        raise(SIGSTOP);
        *resumed = 1;
        churn((void *)10);
        CHECK(read(seen[0], &byte, 1) == 1);
        raise(SIGTSTP);
        *resumed = 2;
        CHECK(read(seen[0], &byte, 1) == 1);
        _exit(7);
    }
    for (int stop = 0; stop < 2; stop++) {
        CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
        CHECK(WSTOPSIG(status) == (stop ? SIGTSTP : SIGSTOP));
        usleep(50000);
        CHECK(*resumed == stop);
        CHECK(waitpid(child, &status, WNOHANG | WUNTRACED | WCONTINUED) == 0);
        CHECK(kill(child, SIGCONT) == 0);
        CHECK(waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
        CHECK(write(seen[1], &byte, 1) == 1);
    }
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void *executes(void *unused) {
    (void)unused;
    char *words[] = {(char *)self, "nothing", 0};
    usleep(5000);
    execve(self, words, environ);
    return 0;
}

static void *waits(void *unused) {
    (void)unused;
    for (;;) churn((void *)1);
    return 0;
}

// A thread other than the first one executes a program.
static void exec_by_thread(void) {
    pthread_t thread;
    for (int other = 0; other < 3; other++) CHECK(pthread_create(&thread, 0, waits, 0) == 0);
    CHECK(pthread_create(&thread, 0, executes, 0) == 0);
    pthread_join(thread, 0);
    exit(1);
}

static void *leaves(void *unused) {
    (void)unused;
    usleep(20000);
    exit(0);
}

// Threads are in the middle of calls when the process ends; the first thread has ended before.
static void exit_in_calls(void) {
    pthread_t thread;
    for (int other = 0; other < 4; other++) CHECK(pthread_create(&thread, 0, waits, 0) == 0);
    CHECK(pthread_create(&thread, 0, leaves, 0) == 0);
    pthread_exit(0);
}

static int waited(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static int in_shared_memory(void *at) {
    *(char *)at = 5;
    return 3;
}

// vfork, posix_spawn, fork, and clone with shared memory and the exit signal of a fork.
static void children(void) {
    char *words[] = {(char *)self, "nothing", 0};
    for (int round = 0; round < 20; round++) {
        pid_t child = vfork();
        if (child == 0) {
            execve(self, words, environ);
            _exit(1);
        }
        CHECK(waited(child) == 0);
        CHECK(posix_spawn(&child, self, 0, 0, words, environ) == 0 && waited(child) == 0);
        child = fork();
        if (child == 0) {
            churn((void *)5);
            _exit(0);
        }
        CHECK(waited(child) == 0);
        char *stack = map(65536), *shared = map(4096);
        child = clone(in_shared_memory, stack + 65536, CLONE_VM | SIGCHLD, shared);
        CHECK(child > 0 && WEXITSTATUS(waited(child)) == 3 && *shared == 5);
        CHECK(munmap(stack, 65536) == 0 && munmap(shared, 4096) == 0);
    }
}

// Processes are killed while they create others.
static void killed(void) {
    for (int round = 0; round < 100; round++) {
        pid_t child = fork();
        if (child == 0) {
            setpgid(0, 0);
            for (;;) {
                pid_t grandchild = fork();
                if (grandchild == 0) _exit(0);
                waitpid(grandchild, 0, 0);
            }
        }
        setpgid(child, child);
        usleep(round * 20);
        CHECK(kill(-child, SIGKILL) == 0);
        CHECK(WTERMSIG(waited(child)) == SIGKILL);
    }
}

// A call that the program's own filter forbids fails, as without a tracer.
static void own_filter(void) {
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTSUP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    char *at = map(4096);
    CHECK(mprotect(at, 4096, PROT_READ) == -1 && errno == ENOTSUP);
    at[0] = 1;
    CHECK(munmap(at, 4096) == 0);
}

static void traces_itself(void) {
    CHECK(ptrace(PTRACE_TRACEME, 0, 0, 0) == -1 && errno == EPERM);
}

// A child that runs on after the program.
static void leaves_child(void) {
    if (fork() == 0) {
        usleep(300000);
        churn((void *)100);
        FILE *file = fopen(getenv("DONE"), "w");
        CHECK(file && fclose(file) == 0);
        _exit(0);
    }
}

static void many_threads(void) {
    pthread_t threads[50];
    for (int at = 0; at < 50; at++) CHECK(pthread_create(&threads[at], 0, churn, (void *)20) == 0);
    for (int at = 0; at < 50; at++) CHECK(pthread_join(threads[at], 0) == 0);
}

static void waits_between(void) {
    churn((void *)5);
    usleep(1500000);
    churn((void *)5);
}

static void *late(void *unused) {
    usleep(50000);
    char *memory = mmap(0, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    for (long at = 0; at < 8 << 20; at += 4096) memory[at] = 1;
    return unused;
}

static void main_ends_first(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, 0, late, 0) == 0);
    pthread_exit(0);
}

static void nothing(void) {}
static void code_7(void) { exit(7); }
static void segv(void) { raise(SIGSEGV); }

int main(int argc, char **argv) {
    static const struct { const char *name; void (*run)(void); } all[] = {
        {"signals", signals}, {"stops", stops}, {"exec_by_thread", exec_by_thread}, {"exit_in_calls", exit_in_calls},
        {"children", children}, {"killed", killed}, {"own_filter", own_filter}, {"traces_itself", traces_itself},
        {"leaves_child", leaves_child}, {"many_threads", many_threads}, {"main_ends_first", main_ends_first}, {"waits_between", waits_between},
        {"nothing", nothing}, {"code_7", code_7}, {"segv", segv},
    };
    self = argv[0];
    for (size_t at = 0; at < sizeof all / sizeof *all; at++) {
        if (argc == 2 && strcmp(argv[1], all[at].name) == 0) {
            all[at].run();
            return 0;
        }
    }
    return 2;
}
