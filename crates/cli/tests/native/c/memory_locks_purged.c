// Locks all its memory repeatedly while other threads free and allocate, so that the allocator purges. Prints how often
// locking failed, and how many blocks are present. Exit 77 if locking is refused.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define THREADS 4
#define CALLS 40
#define BLOCKS 64
#define KEPT 40
#define KEPT_BYTES 300000ul

static int stop;

static void *others(void *unused) {
    char *blocks[BLOCKS] = {0};
    for (unsigned round = 1; !__atomic_load_n(&stop, __ATOMIC_RELAXED); round++) {
        unsigned at = round * 2654435761u >> 26;
        free(blocks[at]);
        unsigned long bytes = 1000 + round * 7919 % 150000;
        blocks[at] = malloc(bytes);
        memset(blocks[at], round, bytes);
    }
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    return 0;
}

static int all_present(int pagemap, char *block) {
    for (uintptr_t at = (uintptr_t)block / PAGE; at <= ((uintptr_t)block + KEPT_BYTES - 1) / PAGE; at++) {
        uint64_t entry = 0;
        if (pread(pagemap, &entry, 8, at * 8) != 8) exit(3);
        if (!(entry >> 63)) return 0;
    }
    return 1;
}

int main(void) {
    static char *kept[KEPT];
    int pagemap = open("/proc/self/pagemap", O_RDONLY), failed = 0, there = 0;
    for (int i = 0; i < KEPT; i++) kept[i] = malloc(KEPT_BYTES);
    if (mlockall(MCL_CURRENT)) return 77;
    munlockall();
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(threads + i, 0, others, 0);
    for (int i = 0; i < CALLS; i++) {
        failed += mlockall(i % 2 ? MCL_CURRENT : MCL_CURRENT | MCL_ONFAULT) != 0;
        if (i < CALLS - 1) munlockall();
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    for (int i = 0; i < KEPT; i++) there += all_present(pagemap, kept[i]);
    printf("%d of %d calls failed, %d of %d blocks present\n", failed, CALLS, there, KEPT);
    return 0;
}
