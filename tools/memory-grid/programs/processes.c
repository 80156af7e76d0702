// Programs with several processes or threads: `processes CASE`.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define MIB (1ul << 20)

extern char **environ;
static const char *self;

static char *map(size_t bytes) {
    char *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return start;
}

static void write_pages(char *start, size_t bytes, size_t stride) {
    for (size_t at = 0; at < bytes; at += stride) start[at]++;
}

/// The child writes while the parent waits, then the parent writes what is shared no longer.
static void fork_then_child(void) {
    char *block = map(16 * MIB);
    write_pages(block, 12 * MIB, PAGE);
    for (int round = 0; round < 3; round++) {
        pid_t child = fork();
        if (child == 0) {
            write_pages(block + round * MIB, 5 * MIB, 3 * PAGE);
            _exit(0);
        }
        waitpid(child, NULL, 0);
        write_pages(block, 16 * MIB, (round + 1) * PAGE);
    }
}

/// The parent writes while the child lives, so it copies every page; then the child writes pages of its own.
static void fork_then_parent(void) {
    char *block = map(16 * MIB);
    write_pages(block, 16 * MIB, PAGE);
    int ready[2], go[2];
    char byte = 0;
    if (pipe(ready) || pipe(go)) exit(1);
    pid_t child = fork();
    if (child == 0) {
        if (read(go[0], &byte, 1) != 1) _exit(1);
        write_pages(block, 16 * MIB, 2 * PAGE);
        if (write(ready[1], &byte, 1) != 1) _exit(1);
        pause();
        _exit(0);
    }
    write_pages(block, 9 * MIB, PAGE);
    if (write(go[1], &byte, 1) != 1 || read(ready[0], &byte, 1) != 1) exit(1);
    write_pages(block, 16 * MIB, PAGE);
    char *more = map(8 * MIB);
    write_pages(more, 8 * MIB, PAGE);
    // Later than the kernel's delayed release of the child's memory could matter.
    kill(child, 9);
    waitpid(child, NULL, 0);
}

static void generations(void) {
    char *block = map(8 * MIB);
    write_pages(block, 8 * MIB, PAGE);
    pid_t child = fork();
    if (child == 0) {
        write_pages(block, 4 * MIB, PAGE);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            write_pages(block, 8 * MIB, PAGE);
            _exit(0);
        }
        waitpid(grandchild, NULL, 0);
        write_pages(block, 8 * MIB, PAGE);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    write_pages(block, 8 * MIB, PAGE);
}

static void vforked(void) {
    char *block = map(8 * MIB);
    write_pages(block, 2 * MIB, PAGE);
    for (int round = 0; round < 3; round++) {
        pid_t child = vfork();
        if (child == 0) {
            for (size_t at = (2 + round) * MIB; at < (3 + round) * MIB; at += PAGE) block[at] = 1;
            execl("/bin/true", "true", (char *)NULL);
            _exit(1);
        }
        waitpid(child, NULL, 0);
    }
    write_pages(block, 8 * MIB, PAGE);
}

static void spawned(void) {
    char *block = map(8 * MIB);
    write_pages(block, 5 * MIB, PAGE);
    for (int round = 0; round < 5; round++) {
        pid_t child;
        char *words[] = {"true", NULL};
        if (posix_spawn(&child, "/bin/true", NULL, NULL, words, environ)) exit(1);
        waitpid(child, NULL, 0);
    }
    write_pages(block, 8 * MIB, PAGE);
}

static void executes_itself(void) {
    char *block = map(8 * MIB);
    write_pages(block, 8 * MIB, PAGE);
    const char *rounds = getenv("ROUNDS");
    int left = rounds ? atoi(rounds) : 3;
    if (left == 0) return;
    char value[16];
    snprintf(value, sizeof value, "%d", left - 1);
    setenv("ROUNDS", value, 1);
    execl(self, self, "exec", (char *)NULL);
    exit(1);
}

static void *thread_body(void *argument) {
    volatile char frame[200000];
    memset((char *)frame, 1, sizeof frame);
    char *block = map(3 * MIB);
    write_pages(block, 3 * MIB, PAGE);
    free(malloc(100000));
    munmap(block, (long)argument * MIB);
    return NULL;
}

/// One thread after the other: the order of operations does not depend on the scheduler.
static void threads_in_turn(void) {
    for (long round = 0; round < 6; round++) {
        pthread_t thread;
        pthread_create(&thread, NULL, thread_body, (void *)(round % 3 + 1));
        pthread_join(thread, NULL);
    }
}

static pthread_barrier_t barrier;
static char *shared_block;

static void *racing_body(void *argument) {
    long number = (long)argument;
    pthread_barrier_wait(&barrier);
    // All threads write every page, so that several fault on one page.
    for (size_t at = 0; at < 32 * MIB; at += PAGE) shared_block[at + number] = 1;
    char *own = map(4 * MIB);
    write_pages(own, 4 * MIB, PAGE);
    munmap(own, 4 * MIB);
    return NULL;
}

static void threads_racing(void) {
    pthread_t threads[4];
    shared_block = map(32 * MIB);
    pthread_barrier_init(&barrier, NULL, 4);
    for (long number = 0; number < 4; number++) pthread_create(&threads[number], NULL, racing_body, (void *)number);
    for (int number = 0; number < 4; number++) pthread_join(threads[number], NULL);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"fork-child", fork_then_child}, {"fork-parent", fork_then_parent}, {"generations", generations},
    {"vfork", vforked}, {"spawn", spawned}, {"exec", executes_itself}, {"threads", threads_in_turn},
    {"race", threads_racing}};

int main(int count, char **words) {
    self = "/proc/self/exe";
    for (size_t index = 0; count > 1 && index < sizeof cases / sizeof *cases; index++) {
        if (strcmp(cases[index].name, words[1]) == 0) {
            cases[index].run();
            return 0;
        }
    }
    fputs("usage: processes CASE\n", stderr);
    return 2;
}
