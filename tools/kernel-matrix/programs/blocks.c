// Memory operations whose result depends on the kernel version and on the THP mode: large blocks of malloc, mremap,
// mappings of many sizes, stacks of threads, partial unmaps, advice, zero pages. Each run makes the same calls and
// touches the same pages. Exit status 1: a call failed.
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define KIB 1024ul
#define MIB (1024 * KIB)
#define PAGE (4 * KIB)
#define THREADS 4

static void need(int holds, const char *what) {
    if (!holds) {
        perror(what);
        exit(1);
    }
}

static char *map(size_t bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(at != MAP_FAILED, "mmap");
    return at;
}

// Writes one byte in each page.
static void write_pages(char *at, size_t bytes) {
    for (size_t offset = 0; offset < bytes; offset += PAGE) ((volatile char *)at)[offset] = 1;
}

static void read_pages(const char *at, size_t bytes) {
    for (size_t offset = 0; offset < bytes; offset += PAGE) (void)((const volatile char *)at)[offset];
}

// Blocks of malloc around the mmap threshold; some grow by mremap.
static void blocks(void) {
    char *kept[24];
    for (size_t i = 0; i < 24; i++) {
        size_t bytes = (i * 317 + 100) * KIB;
        kept[i] = malloc(bytes);
        need(kept[i] != NULL, "malloc");
        write_pages(kept[i], bytes);
    }
    for (size_t i = 0; i < 24; i += 3) {
        size_t bytes = (i * 317 + 100) * KIB;
        kept[i] = realloc(kept[i], 2 * bytes);
        need(kept[i] != NULL, "realloc");
        write_pages(kept[i] + bytes, bytes);
    }
    for (size_t i = 0; i < 24; i += 2) free(kept[i]);
}

// Mappings of sizes that newer kernels align differently; advice, protection and unmaps of parts.
static void mappings(void) {
    static const size_t sizes[] = {2 * MIB, 2 * MIB + 4 * KIB, 3 * MIB, 4 * MIB, 6 * MIB + 64 * KIB, 16 * MIB, 1 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *written = map(sizes[i]);
        write_pages(written, sizes[i]);
        char *part = map(sizes[i]);
        need(madvise(part, sizes[i], MADV_HUGEPAGE) == 0, "madvise");
        write_pages(part + sizes[i] / 2, sizes[i] / 4);
        char *zeros = map(sizes[i]);
        read_pages(zeros, sizes[i]);
        write_pages(zeros + sizes[i] / 4, sizes[i] / 8);
        if (i % 2 == 0) {
            need(munmap(written + 64 * KIB, 256 * KIB) == 0, "munmap");
            need(madvise(part + sizes[i] / 2, 512 * KIB, MADV_DONTNEED) == 0, "madvise");
        } else {
            need(mprotect(written + 512 * KIB, 512 * KIB, PROT_READ) == 0, "mprotect");
            read_pages(written, sizes[i]);
        }
    }
}

// A mapping that grows by mremap until it must move, and one that shrinks.
static void moves(void) {
    char *growing = map(3 * MIB);
    write_pages(growing, 3 * MIB);
    for (size_t mib = 4; mib <= 12; mib += 2) {
        growing = mremap(growing, (mib == 4 ? 3 : mib - 2) * MIB, mib * MIB, MREMAP_MAYMOVE);
        need(growing != MAP_FAILED, "mremap");
        write_pages(growing + (mib - 1) * MIB, MIB);
        write_pages(map(64 * KIB), 64 * KIB);
    }
    char *shrinking = map(8 * MIB);
    write_pages(shrinking, 8 * MIB);
    need(mremap(shrinking, 8 * MIB, 3 * MIB + 64 * KIB, 0) == shrinking, "mremap");
}

// A thread writes to a deep part of its stack, and to the mapping that it was given.
static void *thread(void *mapping) {
    char deep[768 * KIB];
    write_pages(deep, sizeof deep);
    write_pages(mapping, 5 * MIB);
    return NULL;
}

static void threads(void) {
    pthread_t ids[THREADS];
    for (int i = 0; i < THREADS; i++) need(pthread_create(&ids[i], NULL, thread, map(5 * MIB)) == 0, "pthread_create");
    for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
}

int main(void) {
    blocks();
    mappings();
    moves();
    threads();
    return 0;
}
