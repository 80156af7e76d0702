// Threads that exchange blocks through shared slots, work for a while, sleep, and work again, so that a recorder has
// time to convert. Prints the total number of calls.
//
// Usage: bursts THREADS CALLS SLEEP_MS
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SLOTS = 512, THREADS_MAX = 16 };

static void *_Atomic slot[SLOTS];
static long calls, sleep_ms;

static void work(uint64_t *random, long count) {
    for (long i = 0; i < count; i += 2) {
        *random ^= *random << 13; *random ^= *random >> 7; *random ^= *random << 17;
        // One malloc and one free per round. The freed block may be from any thread; at first it is NULL.
        free(atomic_exchange(&slot[*random % SLOTS], malloc(16 + *random / SLOTS % 500)));
    }
}

static void *run(void *number) {
    uint64_t random = 88172645463325252u + (uintptr_t)number * 7919;
    work(&random, calls / 2);
    usleep((useconds_t)sleep_ms * 1000);
    work(&random, calls - calls / 2);
    return 0;
}

int main(int argc, char **argv) {
    (void)argc;
    long threads = atol(argv[1]);
    calls = atol(argv[2]) / 4 * 4;
    sleep_ms = atol(argv[3]);
    pthread_t thread[THREADS_MAX];
    for (long i = 0; i < threads; i++) pthread_create(&thread[i], 0, run, (void *)i);
    for (long i = 0; i < threads; i++) pthread_join(thread[i], 0);
    for (int i = 0; i < SLOTS; i++) free(slot[i]);
    printf("%ld %d\n", threads * calls, SLOTS);
    return 0;
}
