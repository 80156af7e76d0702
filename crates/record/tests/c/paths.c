// Threads call malloc on new call paths until the program is killed at a random moment. A path is a number: at each
// level a bit selects one of two functions. The requested size contains the number, so it determines the stack.
//
// Usage: paths MICROSECONDS
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 4, LEVELS = 12, SIZE = 10000 };
#define APART __attribute__((noinline, noclone))
#define KEEP(block) __asm__ volatile("" : : "r"(block) : "memory")

static void *zero(unsigned path, int level);
static void *one(unsigned path, int level);

static APART void *end(unsigned path) {
    void *block = malloc(SIZE + path);
    KEEP(block);
    return block;
}
static APART void *next(unsigned path, int level) {
    void *block = level == LEVELS ? end(path) : path >> level & 1 ? one(path, level) : zero(path, level);
    KEEP(block);
    return block;
}
static APART void *zero(unsigned path, int level) {
    void *block = next(path, level + 1);
    KEEP(block);
    return block;
}
static APART void *one(unsigned path, int level) {
    void *block = next(path, level + 1);
    KEEP(block);
    return block;
}

static void *work(void *argument) {
    for (unsigned at = (unsigned)(size_t)argument;; at += THREADS) free(next(at * 2654435761u >> (32 - LEVELS), 0));
    return argument;
}

int main(int count, char **words) {
    for (size_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, work, (void *)i)) return 2;
    }
    usleep(count > 1 ? atoi(words[1]) : 0);
    kill(getpid(), SIGKILL);
}
