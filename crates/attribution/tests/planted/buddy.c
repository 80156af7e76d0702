// A buddy allocator: a block is a power of two, halved from a larger one and merged with its other half when it is freed.
// Each half that is left over is linked, and a freed block is filled over its whole size. It counts what both cost, and
// writes the counts to the file PLANTED_COUNTS when the process ends. Counting begins with a request of START_BYTES.

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096u
#define REGION ((size_t)256 << 20)
#define LEAST 6
#define MOST 22
#define START_BYTES 31337u
#define SEPARATE __attribute__((noinline, noclone))

struct half {
    struct half *next, *before;
};

struct header {
    uint32_t order, bytes;
    uint64_t padding;
};

static char *base;
static size_t used;
static struct half *lists[MOST + 1];
// By 64 bytes: 1 + the order of the free block that begins there. Not part of the region, so that it has no blocks beside it.
static unsigned char orders[REGION >> LEAST], present[REGION / PAGE];
static unsigned long halves, cleared;

// The bytes are used: how many of their pages were not present.
static unsigned long use(void *at, size_t bytes) {
    unsigned long new = 0;
    size_t first = ((char *)at - base) / PAGE, last = ((char *)at + bytes - 1 - base) / PAGE;
    for (size_t page = first; page <= last; page++) {
        new += !present[page];
        present[page] = 1;
    }
    return new;
}

SEPARATE static void link_half(struct half *half, int order) {
    halves += use(half, sizeof *half);
    half->next = lists[order];
    half->before = NULL;
    if (half->next) half->next->before = half;
    lists[order] = half;
    orders[((char *)half - base) >> LEAST] = order + 1;
}

SEPARATE static void unlink_half(struct half *half, int order) {
    if (half->before) half->before->next = half->next;
    else lists[order] = half->next;
    if (half->next) half->next->before = half->before;
    orders[((char *)half - base) >> LEAST] = 0;
}

SEPARATE static void fill_freed(struct header *header) {
    size_t bytes = ((size_t)1 << header->order) - sizeof *header;
    cleared += use(header + 1, bytes);
    memset(header + 1, 0, bytes);
    __asm__ volatile("" ::: "memory"); // so that memset is called, and not jumped to
}

static char *take(int order) {
    struct half *half = lists[order];
    if (half) {
        unlink_half(half, order);
        return (char *)half;
    }
    if (order == MOST) {
        if (used == REGION) return NULL;
        used += (size_t)1 << MOST;
        return base + used - ((size_t)1 << MOST);
    }
    char *whole = take(order + 1);
    if (whole) link_half((struct half *)(whole + ((size_t)1 << order)), order);
    return whole;
}

__attribute__((constructor)) static void begin(void) {
    if (base) return;
    base = mmap(NULL, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memset(orders, 1, sizeof orders);
    memset(orders, 0, sizeof orders);
    memset(present, 1, sizeof present);
    memset(present, 0, sizeof present);
}

__attribute__((destructor)) static void finish(void) {
    const char *path = getenv("PLANTED_COUNTS");
    char text[128];
    int file = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644) : -1;
    if (file < 0) return;
    int bytes = snprintf(text, sizeof text, "halves %lu\ncleared %lu\n", halves, cleared);
    if (write(file, text, bytes) != bytes) _exit(9);
    close(file);
}

void *malloc(size_t bytes) {
    begin();
    if (bytes == START_BYTES) halves = cleared = 0;
    int order = LEAST;
    while (((size_t)1 << order) < bytes + sizeof(struct header)) order++;
    struct header *header = order > MOST ? NULL : (struct header *)take(order);
    if (!header) {
        errno = ENOMEM;
        return NULL;
    }
    use(header, sizeof *header + bytes);
    header->order = order;
    header->bytes = bytes;
    return header + 1;
}

void free(void *block) {
    if (!block) return;
    struct header *header = (struct header *)block - 1;
    fill_freed(header);
    int order = header->order;
    size_t at = (char *)header - base;
    for (; order < MOST && orders[(at ^ (size_t)1 << order) >> LEAST] == order + 1; order++) {
        unlink_half((struct half *)(base + (at ^ (size_t)1 << order)), order);
        at &= ~((size_t)1 << order);
    }
    link_half((struct half *)(base + at), order);
}

void *calloc(size_t count, size_t bytes) {
    void *block = malloc(count * bytes);
    if (block) memset(block, 0, count * bytes);
    return block;
}

void *realloc(void *block, size_t bytes) {
    void *moved = malloc(bytes);
    if (moved && block) {
        size_t before = ((struct header *)block - 1)->bytes;
        memcpy(moved, block, before < bytes ? before : bytes);
        free(block);
    }
    return moved;
}

void *memalign(size_t alignment, size_t bytes) {
    errno = ENOMEM;
    return alignment <= sizeof(struct header) ? malloc(bytes) : NULL;
}

void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    *out = memalign(alignment, bytes);
    return *out ? 0 : ENOMEM;
}

size_t malloc_usable_size(void *block) { return block ? ((struct header *)block - 1)->bytes : 0; }
