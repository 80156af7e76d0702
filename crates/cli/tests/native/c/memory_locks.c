// Locks all its memory, in every way, and prints what the kernel reports about its pages. Exit 77 if locking is
// refused.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define MIB (1ul << 20)
#define BLOCKS 40

static int pagemap;

static long kilobytes(const char *key) {
    char text[8192];
    int fd = open("/proc/self/status", O_RDONLY);
    long got = read(fd, text, sizeof text - 1);
    close(fd);
    text[got] = 0;
    return atol(strstr(text, key) + strlen(key));
}

// Present pages of a range, from /proc/self/pagemap.
static unsigned long present(void *start, unsigned long bytes) {
    unsigned long count = 0;
    for (uintptr_t at = (uintptr_t)start & ~(PAGE - 1); at < (uintptr_t)start + bytes; at += PAGE) {
        uint64_t entry = 0;
        if (pread(pagemap, &entry, 8, at / PAGE * 8) != 8) exit(3);
        count += entry >> 63;
    }
    return count;
}

static int all_present(void *start, unsigned long bytes) {
    unsigned long first = (uintptr_t)start / PAGE, last = ((uintptr_t)start + bytes - 1) / PAGE;
    return present(start, bytes) == last - first + 1;
}

static void *map(int protection) {
    return mmap(0, 64 * PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void tell(const char *what, char **blocks, int count, unsigned long bytes) {
    int there = 0;
    for (int i = 0; i < count; i++) there += all_present(blocks[i], bytes);
    // The bound is far above what the program uses and far below the size of an arena.
    printf("%s: %d blocks present, %s, %s\n", what, there, kilobytes("VmRSS:") < 400 << 10 ? "bounded" : "unbounded",
           kilobytes("VmLck:") ? "locked" : "not locked");
}

// The error of mlockall with these flags; 0 if it succeeds.
static int error_of(int flags) { return mlockall(flags) ? errno : 0; }

static void *others(void *stop) {
    while (!*(volatile int *)stop) {
        char *block = malloc(100000);
        memset(block, 1, 100000);
        free(block);
    }
    return 0;
}

int main(void) {
    static char *before[BLOCKS], *after[BLOCKS];
    setvbuf(stdout, 0, _IONBF, 0);
    pagemap = open("/proc/self/pagemap", O_RDONLY);
    for (int i = 0; i < BLOCKS; i++) before[i] = malloc(MIB);
    char *writable = map(PROT_READ | PROT_WRITE), *forbidden = map(PROT_NONE);
    if (mlockall(MCL_CURRENT)) return 77;
    tell("current", before, BLOCKS, MIB);
    printf("own maps: %lu and %lu pages\n", present(writable, 64 * PAGE), present(forbidden, 64 * PAGE));
    printf("new map: %lu pages\n", present(map(PROT_READ | PROT_WRITE), 64 * PAGE));
    munlockall();
    tell("unlocked", before, BLOCKS, MIB);

    printf("errors: %d %d %d\n", error_of(MCL_ONFAULT), error_of(0), error_of(64));

    printf("future: %d\n", mlockall(MCL_FUTURE));
    for (int i = 0; i < BLOCKS; i++) after[i] = malloc(MIB);
    tell("future", after, BLOCKS, MIB);
    printf("new map: %lu pages\n", present(map(PROT_READ | PROT_WRITE), 64 * PAGE));
    // The contents of locked memory must be right even if the allocator cannot return the memory to the kernel.
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            memset(after[i], i, MIB);
            free(after[i]);
            after[i] = calloc(1, MIB + round * 40000);
            for (unsigned long at = 0; at < MIB; at += 512)
                if (after[i][at]) return 4;
        }
    }
    fflush(stdout);
    if (!fork()) {
        printf("child: %s", kilobytes("VmLck:") ? "locked" : "not locked");
        char *block = malloc(200 * MIB);
        printf(", %s\n", present(block, 200 * MIB) < 25600 ? "not present" : "present");
        free(block);
        _exit(0);
    }
    wait(0);

    printf("on fault: %d\n", mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT));
    printf("new map: %lu pages\n", present(map(PROT_READ | PROT_WRITE), 64 * PAGE));
    printf("current alone: %d\n", mlockall(MCL_CURRENT));
    printf("new map: %lu pages\n", present(map(PROT_READ | PROT_WRITE), 64 * PAGE));

    int stop = 0;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(threads + i, 0, others, &stop);
    for (int i = 0; i < 20; i++) {
        if (mlockall(i % 2 ? MCL_CURRENT : MCL_CURRENT | MCL_FUTURE)) return 5;
        munlockall();
    }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    munlockall();
    tell("at the end", before, BLOCKS, MIB);
    return 0;
}
