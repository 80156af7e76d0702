// Each mode is a situation in which recorders may fail. Exits with 0 if the program itself observed nothing unusual.
// Usage: pitfalls MODE [ARGUMENT]
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern void free_sized(void *, size_t) __attribute__((weak));
extern void free_aligned_sized(void *, size_t, size_t) __attribute__((weak));
extern void cfree(void *) __attribute__((weak));

static void *volatile sink;
static void work(int n, size_t size) { for (int i = 0; i < n; i++) { sink = malloc(size); free(sink); } }

// Thread-specific destructors that free and allocate in each of the four rounds that POSIX guarantees.
static pthread_key_t keys[3];
static void last_wish(void *p) {
    size_t left = *(size_t *)p;
    free(p);
    if (left == 0) return;
    size_t *next = malloc(4000 + left);
    *next = left - 1;
    for (int i = 0; i < 3; i++) if (!pthread_getspecific(keys[i])) { pthread_setspecific(keys[i], next); return; }
}
static void *four_rounds(void *unused) {
    size_t *first = malloc(4004);
    *first = 3;
    pthread_setspecific(keys[0], first);
    return unused;
}
static int destructors(void) {
    for (int i = 0; i < 3; i++) if (pthread_key_create(&keys[i], last_wish)) return 1;
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, four_rounds, 0) || pthread_join(thread, 0)) return 1;
    }
    return 0;
}

static void on_stack(int signal) { (void)signal; work(100, 4100); }
static int alternate_stack(void) { // as small as the system allows
    size_t bytes = sysconf(_SC_MINSIGSTKSZ) > MINSIGSTKSZ ? sysconf(_SC_MINSIGSTKSZ) : MINSIGSTKSZ;
    stack_t stack = {.ss_sp = malloc(bytes + 4096), .ss_size = bytes + 4096};
    struct sigaction action = {.sa_handler = on_stack, .sa_flags = SA_ONSTACK};
    if (sigaltstack(&stack, 0) || sigaction(SIGUSR1, &action, 0)) return 1;
    for (int i = 0; i < 1000; i++) raise(SIGUSR1);
    return 0;
}

static int errno_kept(void) { // while thread buffers are created, fill up and are drained
    for (int i = 0; i < 200000; i++) {
        errno = 4242;
        void *p = malloc(4200);
        sink = p;
        if (!p || errno != 4242) return 1;
        free(p);
        if (errno != 4242) return 2;
    }
    errno = 0;
    volatile size_t absurd = (size_t)1 << 62;
    if (malloc(absurd) || errno != ENOMEM) return 3;
    errno = 0;
    if (reallocarray(0, absurd, 64) || errno != ENOMEM) return 4;
    if (calloc(absurd, 64)) return 5;
    return 0;
}

// Prints properties of the heap that the program can observe. A bare and a recorded run print the same.
static int sizes_kept(void) {
    for (size_t n = 0; n < 3000; n += 7) {
        void *p = malloc(n), *q = realloc(malloc(n), n * 2 + 1), *r = aligned_alloc(64, n), *s = calloc(n, 3);
        printf("%zu %zu %zu %zu %zu\n", n, malloc_usable_size(p), malloc_usable_size(q), malloc_usable_size(r), malloc_usable_size(s));
        free(p); free(q); free(r); free(s);
    }
    return 0;
}

static int environment_cleared(void) {
    clearenv();
    work(100000, 4300);
    pid_t child = fork();
    if (child == 0) { work(1000, 4301); _exit(0); }
    int status;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

// Drops privileges as servers do: changes the root directory and the user, then forks a worker.
static int privileges_dropped(const char *root) {
    work(100, 4400);
    if (chroot(root) || chdir("/") || setgroups(0, 0) || setgid(65534) || setuid(65534)) return 1;
    pid_t child = fork();
    if (child == 0) { work(100000, 4401); _exit(0); }
    int status;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 2;
}

// No new descriptors, files or mappings of files: openat, fallocate, pwrite64 and pwritev fail with EPERM.
static int filtered(void) {
    work(1000, 4500);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwrite64, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwritev, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 77;
    work(100000, 4501);
    return 0;
}

static int deeply_bound(const char *library) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    void *(*make)(size_t) = handle ? (void *(*)(size_t))dlsym(handle, "make") : 0;
    if (!make) return 1;
    for (int i = 0; i < 100; i++) free(make(4600));
    work(100, 4601);
    return 0;
}

// Blocks are passed in both directions between the program and a library opened with RTLD_DEEPBIND.
static int deeply_bound_frees(const char *library) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    void *(*make)(size_t) = handle ? (void *(*)(size_t))dlsym(handle, "make") : 0;
    void (*take)(void *) = handle ? (void (*)(void *))dlsym(handle, "take") : 0;
    if (!make || !take) return 1;
    for (int i = 0; i < 100; i++) { free(make(4600)); take(malloc(4601)); }
    return 0;
}

// Several threads load and unload libraries, each of which has its own thread-local storage.
static void *load_library(void *library) {
    for (int i = 0; i < 100; i++) {
        void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
        void *(*make)(size_t) = handle ? (void *(*)(size_t))dlsym(handle, "make") : 0;
        if (!make) return library;
        free(make(4700));
        dlclose(handle);
    }
    return 0;
}
static int libraries(char *library) {
    pthread_t threads[4];
    int bad = 0;
    for (int i = 0; i < 4; i++) if (pthread_create(&threads[i], 0, load_library, library)) return 1;
    for (int i = 0; i < 4; i++) { void *result; if (pthread_join(threads[i], &result) || result) bad = 1; }
    return bad;
}

static int rare_frees(void) {
    if (!free_sized || !free_aligned_sized || !cfree) return 1; // only the recorder has them all
    for (int i = 0; i < 10; i++) {
        sink = malloc(4801); free_sized(sink, 4801);
        sink = aligned_alloc(256, 5120); free_aligned_sized(sink, 256, 5120);
        sink = malloc(4803); cfree(sink);
        free_sized(0, 0);
    }
    return 0;
}

int main(int count, char **word) {
    const char *mode = count > 1 ? word[1] : "";
    char *argument = count > 2 ? word[2] : "";
    if (!strcmp(mode, "destructors")) return destructors();
    if (!strcmp(mode, "alternate-stack")) return alternate_stack();
    if (!strcmp(mode, "errno")) return errno_kept();
    if (!strcmp(mode, "sizes")) return sizes_kept();
    if (!strcmp(mode, "environment")) return environment_cleared();
    if (!strcmp(mode, "privileges")) return privileges_dropped(argument);
    if (!strcmp(mode, "filtered")) return filtered();
    if (!strcmp(mode, "deepbind")) return deeply_bound(argument);
    if (!strcmp(mode, "deepbind-frees")) return deeply_bound_frees(argument);
    if (!strcmp(mode, "libraries")) return libraries(argument);
    if (!strcmp(mode, "frees")) return rare_frees();
    if (!strcmp(mode, "quick-exit")) { for (int i = 0; i < 50; i++) malloc(4900); quick_exit(0); }
    return 2;
}
