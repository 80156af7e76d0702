// Allocates on the smallest stacks that programs use, each above an inaccessible page. Ends with SIGSEGV if an allocator
// needs more. Argument: which stack.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static char *guarded(size_t bytes) {
    char *at = mmap(0, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(at, 4096, PROT_NONE);
    return at + 4096;
}

// Enough calls to fill a thread's buffer, of sizes that need new pages, and a fork.
static void allocate(void) {
    for (int i = 0; i < 17000; i++) {
        char *block = malloc(i % 6000 + 1);
        *block = 1;
        free(block);
    }
    free(realloc(calloc(1, 9000), 20000));
    pid_t child = fork();
    if (child == 0) {
        free(malloc(100));
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0) abort();
}

static void on_signal(int number) {
    (void)number;
    allocate();
}

static void in_handler(void) {
    stack_t stack = {.ss_sp = guarded(8192), .ss_size = 8192};
    sigaltstack(&stack, 0);
    sigaction(SIGUSR1, &(struct sigaction){.sa_handler = on_signal, .sa_flags = SA_ONSTACK}, 0);
    raise(SIGUSR1);
}

static void in_coroutine(void) {
    static ucontext_t outer, inner;
    getcontext(&inner);
    inner.uc_stack.ss_sp = guarded(4096);
    inner.uc_stack.ss_size = 4096;
    inner.uc_link = &outer;
    makecontext(&inner, allocate, 0);
    swapcontext(&outer, &inner);
}

// The child's first call is on the small stack.
static void in_child(void) {
    pid_t child = fork();
    if (child == 0) {
        in_handler();
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    if (status != 0) abort();
}

static pthread_key_t key;

static void at_end(void *block) {
    free(block);
    free(malloc(300));
}

static void *thread(void *unused) {
    pthread_setspecific(key, malloc(100));
    allocate();
    return unused;
}

// Threads that allocate while they end.
static void in_threads(void) {
    pthread_key_create(&key, at_end);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, 16384) != 0) abort();
    for (int i = 0; i < 5; i++) {
        pthread_t id;
        if (pthread_create(&id, &attributes, thread, 0) != 0) abort();
        pthread_join(id, 0);
    }
}

int main(int count, char **words) {
    void (*cases[])(void) = {in_handler, in_coroutine, in_child, in_threads};
    const char *names[] = {"handler", "coroutine", "child", "threads"};
    for (int i = 0; i < 4; i++)
        if (count == 2 && strcmp(words[1], names[i]) == 0) {
            cases[i]();
            puts("done");
            return 0;
        }
    return 2;
}
