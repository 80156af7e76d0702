// A malloc library with planted decisions, which are chosen with -D. It counts what each of them costs, and writes the
// counts to the file PLANTED_COUNTS when the process ends.
//
// Blocks are in slabs of 64 KiB, one size class (a power of two) each. The program must write every byte of each block
// when it gets it; so the library knows which pages are present. Counting begins with a request of START_BYTES.

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
#define SLAB 65536u
#define SLABS 8192u
#define CLASSES 12
#define START_BYTES 31337u
#define SEPARATE __attribute__((noinline, noclone))

// The class, 16 << index, that has a decision; 99 for none.
#ifndef HEADER_CLASS
#define HEADER_CLASS 99
#endif
#ifndef CARVE_CLASS
#define CARVE_CLASS 99
#endif
#ifndef PREFAULT_CLASS
#define PREFAULT_CLASS 99
#endif
#ifndef PURGE_CLASS
#define PURGE_CLASS 99
#endif
#ifndef FLUSH_CLASS
#define FLUSH_CLASS 99
#endif
#ifndef FLUSH_BLOCKS
#define FLUSH_BLOCKS 16
#endif
#ifndef UNMAP_CLASS
#define UNMAP_CLASS 99
#endif
// Pages that are used before the first call.
#ifndef STARTUP_PAGES
#define STARTUP_PAGES 0
#endif

struct slab {
    int class, used, carved;
    void *free;
    int next;
    uint16_t present, purged;
};

static char *base;
static struct slab slabs[SLABS];
static int slabs_used, partial[CLASSES];
static void *cached[FLUSH_BLOCKS], *flushed[65536];
static int cached_count, flushed_count;
static unsigned long headers, carved, prefaulted, refaulted, reflushed, remapped, mapped;

enum os_call { MAP, MAP_AGAIN, UNMAP, PURGE };

static void *call_os(enum os_call call, void *at, size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (call == MAP_AGAIN ? MAP_FIXED : 0);
    switch (call) {
    case UNMAP: return munmap(at, bytes) ? MAP_FAILED : NULL;
    case PURGE: return madvise(at, bytes, MADV_DONTNEED) ? MAP_FAILED : NULL;
    default: return mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    }
}

#ifdef WRAPPED
// One function makes all calls, so that who called it is of interest.
SEPARATE static void *os(enum os_call call, void *at, size_t bytes) {
    void *result = call_os(call, at, bytes);
    __asm__ volatile("" ::: "memory"); // so that the call is none that the caller jumps to
    return result;
}
#else
#define os call_os
#endif

static unsigned stride(int class) { return class == HEADER_CLASS ? 2 * PAGE : 16u << class; }

// The bytes are used: counts the pages that were given up before by `purged`.
static unsigned use(struct slab *slab, char *at, size_t bytes) {
    size_t offset = at - (base + (slab - slabs) * (size_t)SLAB);
    unsigned again = 0;
    for (size_t page = offset / PAGE; page <= (offset + (bytes ? bytes : 1) - 1) / PAGE; page++) {
        again += slab->purged >> page & 1;
        slab->purged &= ~(1u << page);
        slab->present |= 1u << page;
    }
    return again;
}

SEPARATE static void header_write(struct slab *slab, char *header) {
    size_t page = (header - (base + (slab - slabs) * (size_t)SLAB)) / PAGE;
    headers += !(slab->present >> page & 1);
    slab->present |= 1u << page;
    *(volatile uint64_t *)header = 0x1234567;
}

SEPARATE static void carve_slab(struct slab *slab, char *start) {
    unsigned step = stride(slab->class), pages = 0;
    void *next = NULL;
    for (int at = SLAB / step - 1; at >= 0; at--) {
        pages |= 1u << at * step / PAGE;
        *(void *volatile *)(start + at * step) = next;
        next = start + at * step;
    }
    carved += __builtin_popcount(pages);
    slab->present |= pages;
    slab->free = next;
    slab->carved = SLAB / step;
}

SEPARATE static void prefault_slab(struct slab *slab, char *start) {
    for (unsigned at = 0; at < SLAB; at += PAGE) *(volatile char *)(start + at) = 0;
    prefaulted += SLAB / PAGE;
    slab->present = 0xffff;
}

SEPARATE static void purge_slab(struct slab *slab, char *start) {
    os(PURGE, start, SLAB);
    slab->purged |= slab->present;
    slab->present = 0;
    slab->free = NULL;
    slab->carved = 0;
}

// Gives the memory back, and reserves its addresses again.
SEPARATE static void unmap_slab(struct slab *slab, char *start) {
    os(UNMAP, start, SLAB);
    if (os(MAP_AGAIN, start, SLAB) != start) abort();
    slab->purged |= slab->present;
    slab->present = 0;
    slab->free = NULL;
    slab->carved = 0;
}

SEPARATE static void cache_flush(void) {
    unsigned bytes = stride(FLUSH_CLASS);
    while (cached_count) {
        char *block = cached[--cached_count];
        struct slab *slab = &slabs[(block - base) / SLAB];
        unsigned first = (block - base) % SLAB / PAGE, pages = ((1u << bytes / PAGE) - 1) << first;
        os(PURGE, block, bytes);
        slab->purged |= slab->present & pages;
        slab->present &= ~pages;
        flushed[flushed_count++] = block;
    }
}

SEPARATE static void *large_alloc(size_t bytes) {
    size_t all = (bytes + 16 + PAGE - 1) / PAGE * PAGE;
    size_t *block = os(MAP, NULL, all);
    if (block == MAP_FAILED) return NULL;
    mapped += all / PAGE;
    *block = all;
    return block + 2;
}

static int is_large(char *block) { return block < base || block >= base + (size_t)SLABS * SLAB; }

SEPARATE static int new_slab(int class) {
    if (slabs_used == SLABS) return -1;
    int at = slabs_used++;
    struct slab *slab = &slabs[at];
    slab->class = class;
    slab->next = -1;
    char *start = base + at * (size_t)SLAB;
    if (class == PREFAULT_CLASS) prefault_slab(slab, start);
    if (class == CARVE_CLASS) carve_slab(slab, start);
    return at;
}

static void start(void) {
    size_t bytes = (size_t)SLABS * SLAB;
    char *all = os(MAP, NULL, bytes + SLAB);
    base = (char *)(((uintptr_t)all + SLAB - 1) / SLAB * SLAB);
    for (int class = 0; class < CLASSES; class++) partial[class] = -1;
}

void *malloc(size_t bytes) {
    if (!base) start();
    if (bytes == START_BYTES) headers = carved = prefaulted = refaulted = reflushed = remapped = mapped = 0;
    if (bytes > 16u << (CLASSES - 1)) return large_alloc(bytes);
    int class = bytes > 16 ? 28 - __builtin_clz((unsigned)bytes - 1) : 0;
    if (class == FLUSH_CLASS && flushed_count) {
        char *block = flushed[--flushed_count];
        reflushed += use(&slabs[(block - base) / SLAB], block, bytes);
        return block;
    }
    int at = partial[class];
    if (at < 0 && (at = partial[class] = new_slab(class)) < 0) return NULL;
    struct slab *slab = &slabs[at];
    char *block = slab->free;
    if (block)
        slab->free = *(void **)block;
    else
        block = base + at * (size_t)SLAB + slab->carved++ * stride(class) + (class == HEADER_CLASS ? PAGE : 0);
    slab->used++;
    if (!slab->free && slab->carved == (int)(SLAB / stride(class))) {
        partial[class] = slab->next;
        slab->next = -2;
    }
    if (class == HEADER_CLASS) header_write(slab, block - PAGE);
    *(class == UNMAP_CLASS ? &remapped : &refaulted) += use(slab, block, bytes);
    return block;
}

void free(void *block) {
    if (!block) return;
    if (is_large(block)) {
        size_t *header = (size_t *)block - 2;
        os(UNMAP, header, *header);
        return;
    }
    int at = ((char *)block - base) / SLAB;
    struct slab *slab = &slabs[at];
    if (slab->class == FLUSH_CLASS) {
        cached[cached_count++] = block;
        if (cached_count == FLUSH_BLOCKS) cache_flush();
        return;
    }
    *(void **)block = slab->free;
    slab->free = block;
    slab->used--;
    if (slab->next == -2) {
        slab->next = partial[slab->class];
        partial[slab->class] = at;
    }
    if (slab->class == PURGE_CLASS && slab->used == 0) purge_slab(slab, base + at * (size_t)SLAB);
    if (slab->class == UNMAP_CLASS && slab->used == 0) unmap_slab(slab, base + at * (size_t)SLAB);
}

size_t malloc_usable_size(void *block) {
    if (!block) return 0;
    if (is_large(block)) return *((size_t *)block - 2) - 16;
    return 16u << slabs[((char *)block - base) / SLAB].class;
}

void *calloc(size_t count, size_t bytes) {
    void *block = malloc(count * bytes);
    if (block) memset(block, 0, count * bytes);
    return block;
}

void *realloc(void *old, size_t bytes) {
    size_t had = malloc_usable_size(old);
    void *block = malloc(bytes);
    if (!block || !old) return block;
    memcpy(block, old, had < bytes ? had : bytes);
    free(old);
    return block;
}

void *memalign(size_t align, size_t bytes) { return malloc(bytes < align ? align : bytes); }
void *aligned_alloc(size_t align, size_t bytes) { return memalign(align, bytes); }
int posix_memalign(void **block, size_t align, size_t bytes) {
    *block = memalign(align, bytes);
    return *block ? 0 : ENOMEM;
}

__attribute__((constructor)) static void begin(void) {
    size_t bytes = (size_t)STARTUP_PAGES * PAGE;
    char *start = bytes ? os(MAP, NULL, bytes) : MAP_FAILED;
    if (start != MAP_FAILED) memset(start, 1, bytes);
}

__attribute__((destructor)) static void report(void) {
    char text[256];
    const char *path = getenv("PLANTED_COUNTS");
    int file = path ? open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600) : -1;
    if (file < 0) return;
    const char *format = "header %lu\ncarve %lu\nprefault %lu\npurge %lu\nflush %lu\nunmap %lu\nmapping %lu\n";
    int bytes = snprintf(text, sizeof text, format, headers, carved, prefaulted, refaulted, reflushed, remapped, mapped);
    if (write(file, text, bytes) != bytes) _exit(9);
    close(file);
}
