// Known call chains. Every call that requests memory is on a separate line, marked with its chain, and its size
// identifies the chain. A chain begins with the function that requests memory and ends with main.
//
// Usage: chains [PLUGIN OTHER]

#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef APART // the program has a gap between its segments
#define FAR __attribute__((noinline, noclone, section("apart")))
#else
#define FAR __attribute__((noinline, noclone))
#endif
#define KEEP(block) __asm__ volatile("" : : "r"(block) : "memory")

static FAR void *leaf(size_t size)
{
    void *block = malloc(size); // asks: leaf
    KEEP(block);
    return block;
}

static FAR void first(void)
{
    void *block = leaf(101); // calls: first
    KEEP(block);
    free(block);
}

static FAR void second(void)
{
    char room[300];
    KEEP(room);
    void *block = leaf(102); // calls: second
    KEEP(block);
    free(block);
    KEEP(room);
}

static FAR int deeper(int levels)
{
    if (levels == 0) {
        void *block = calloc(1, 103); // asks: deeper
        KEEP(block);
        free(block);
        return 0;
    }
    int below = deeper(levels - 1); // calls: deeper
    KEEP(below);
    return below + 1;
}

// A frame of unknown size, and an aligned frame. Unwinding both needs the frame pointer.
static FAR void flexible(int bytes)
{
    char room[bytes];
    __attribute__((aligned(64))) char aligned[64];
    KEEP(room);
    KEEP(aligned);
    void *block = malloc(104); // asks: flexible
    KEEP(block);
    free(block);
    KEEP(aligned);
    KEEP(room);
}

static FAR void grows(void)
{
    void *block = realloc(NULL, 105); // asks: grows
    block = realloc(block, 50105); // asks: grows_more
    KEEP(block);
    free(block);
}

static FAR void aligns(void)
{
    void *block = memalign(256, 106); // asks: aligns
    KEEP(block);
    free(block);
}

static void handler(int signal)
{
    (void)signal;
    void *block = malloc(107); // asks: handler
    KEEP(block);
    free(block);
}

static FAR void interrupted(void)
{
    raise(SIGUSR1); // calls: interrupted
    KEEP(0);
}

static void *worker(void *unused)
{
    (void)unused;
    for (int i = 0; i < 25; i++) {
        void *block = malloc(108); // asks: worker
        KEEP(block);
        free(block);
    }
    return NULL;
}

static FAR void of_child(void)
{
    void *block = malloc(109); // asks: of_child
    KEEP(block);
    free(block);
}

static FAR void plug(const char *library)
{
    void *handle = dlopen(library, RTLD_NOW);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(1);
    }
    void (*work)(void) = (void (*)(void))dlsym(handle, "plugged");
    for (int i = 0; i < 5; i++) {
        work(); // calls: plug
        KEEP(0);
    }
    dlclose(handle);
}

int main(int count, char **words)
{
#ifdef NO_FIND_OBJECT // hides a function that glibc has since 2.35
    if (dlsym(RTLD_DEFAULT, "_dl_find_object") != NULL) {
        return 3;
    }
#endif
    signal(SIGUSR1, handler);
    for (int i = 0; i < 100; i++) {
        first(); // calls: main_first
        if (i % 2 == 0) {
            second(); // calls: main_second
        }
    }
    deeper(3);
    for (int i = 0; i < 7; i++) {
        flexible(10 + 100 * i);
    }
    grows();
    aligns();
    interrupted();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        pthread_create(&threads[i], NULL, worker, NULL);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    if (fork() == 0) {
        for (int i = 0; i < 9; i++) {
            of_child();
        }
        _exit(0);
    }
    wait(NULL);
    for (int i = 1; i < count; i++) {
        plug(words[i]);
    }
    kill(getpid(), SIGKILL);
}
