// Processes, threads and signal handlers. Each mode makes a fixed number of calls with distinct sizes.
// Usage: processes fork|clone|spawn|exec|after|late|daemon|fds
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

static void *block[1000];
static void fill(int n, size_t size) { for (int i = 0; i < n; i++) if (!(block[i] = malloc(size))) abort(); }
static void drop(int from, int to) { for (int i = from; i < to; i++) free(block[i]); }

// The child frees ten of its parent's blocks; both keep allocating at the same time.
static int fork_mode(int raw) {
    fill(1000, 101);
    pid_t child = raw ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
    if (child == 0) {
        drop(0, 10);
        for (int round = 0; round < 100; round++) { fill(500, 202); drop(0, 500); }
        _exit(0);
    }
    drop(0, 1000);
    for (int round = 0; round < 100; round++) { fill(500, 102); drop(0, 500); }
    int status;
    return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}

static int spawn_mode(void) {
    extern char **environ;
    for (int i = 0; i < 20; i++) {
        fill(100, 111);
        pid_t child;
        char *words[] = {"true", 0};
        if (posix_spawn(&child, "/bin/true", 0, 0, words, environ)) return 1;
        drop(0, 50);
        int status;
        if (waitpid(child, &status, 0) != child || status) return 1;
        child = vfork();
        if (child == 0) { execl("/bin/true", "true", (char *)0); _exit(1); }
        drop(50, 100);
        if (waitpid(child, &status, 0) != child || status) return 1;
    }
    return 0;
}

static pthread_key_t key;
static void free_at_end(void *p) { // frees in two rounds of destructors
    uintptr_t *next = *(uintptr_t **)p;
    free(p);
    if (next) pthread_setspecific(key, next);
}
static void *short_life(void *unused) {
    uintptr_t **first = malloc(707);
    first[0] = malloc(708);
    first[0][0] = 0;
    pthread_setspecific(key, first);
    return unused;
}
static int late_mode(int threads) {
    pthread_key_create(&key, free_at_end);
    for (int i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, short_life, 0) || pthread_join(thread, 0)) return 1;
    }
    return 0;
}

// The program ends, but a process remains that allocates until it is killed or a minute has passed.
static int daemon_mode(void) {
    if (fork()) { usleep(50000); return 0; }
    setsid();
    alarm(60);
    for (;;) { fill(100, 909); drop(0, 100); }
}

// Closes every descriptor, as daemons do, and opens a file under the recorder's number.
static int fds_mode(void) {
    fill(100, 121);
    for (int fd = 3; fd < 2048; fd++) close(fd);
    char name[] = "/tmp/hksim-fds-XXXXXX";
    int own = mkstemp(name);
    unlink(name);
    if (own < 0 || write(own, "own", 3) != 3 || dup2(own, 900) != 900) return 1;
    for (int round = 0; round < 1000; round++) { fill(100, 122); drop(0, 100); }
    return lseek(own, 0, SEEK_END) == 3 ? 0 : 1;
}

int main(int count, char **word) {
    if (count < 2) return 2;
    if (!strcmp(word[1], "fork")) return fork_mode(0);
    if (!strcmp(word[1], "clone")) return fork_mode(1);
    if (!strcmp(word[1], "spawn")) return spawn_mode();
    if (!strcmp(word[1], "daemon")) return daemon_mode();
    if (!strcmp(word[1], "fds")) return fds_mode();
    if (!strcmp(word[1], "late")) return late_mode(300);
    if (!strcmp(word[1], "exec")) { fill(100, 303); execl(word[0], word[0], "after", (char *)0); return 1; }
    if (!strcmp(word[1], "after")) { fill(50, 404); return 0; }
    return 2;
}
