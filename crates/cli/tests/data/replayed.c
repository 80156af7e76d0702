// A malloc library for replays: a large mapping is handed out from its start to its end, and requests of 1 MiB and more
// have mappings of their own. Where huge pages are allowed to the process, as in the replay that is measured but not in the
// one that is recorded, it does something else: with -DMORE_FAULTS it uses 100 more pages, with -DHIGHER_PEAK it uses
// two mappings at the same time instead of one after the other.

#define _GNU_SOURCE
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#define POOL ((size_t)1 << 30)
#define LARGE ((size_t)1 << 20)
#define PAGE ((size_t)4096)
#define EXTRA (LARGE * 64)

struct header {
    size_t bytes, mapped;
    char padding[48];
};

static char *next, *end;

static char *map(size_t bytes) {
    char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void touch(char *at, size_t bytes) {
    for (size_t page = 0; page < bytes; page += PAGE) at[page] = 1;
}

static int is_measured(void) { return prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) == 0; }

__attribute__((constructor)) static void begin(void) {
#ifdef MORE_FAULTS
    char *more = map(100 * PAGE);
    if (is_measured()) touch(more, 100 * PAGE);
#endif
}

// Two mappings, once, with the same calls and the same faults in both replays.
static void rise(void) {
#ifdef HIGHER_PEAK
    char *first = map(EXTRA), *second = map(EXTRA);
    madvise(first, EXTRA, MADV_NOHUGEPAGE);
    madvise(second, EXTRA, MADV_NOHUGEPAGE);
    touch(first, EXTRA);
    if (is_measured()) touch(second, EXTRA);
    munmap(first, EXTRA);
    if (!is_measured()) touch(second, EXTRA);
    munmap(second, EXTRA);
#endif
}

static void *allocate(size_t alignment, size_t bytes) {
    size_t wanted = (bytes + alignment + 2 * sizeof(struct header)) & ~(size_t)15;
    size_t mapped = bytes >= LARGE ? (wanted + PAGE - 1) & ~(PAGE - 1) : 0;
    char *start;
    static int large;
    if (mapped && large++ == 9) rise();
    if (mapped) {
        start = map(mapped);
    } else {
        if (next + wanted > end) {
            next = map(POOL);
            if (!next) return NULL;
            end = next + POOL;
        }
        start = next;
        next += wanted;
    }
    if (!start) return NULL;
    uintptr_t block = ((uintptr_t)start + sizeof(struct header) + alignment - 1) & ~(uintptr_t)(alignment - 1);
    struct header *header = (struct header *)(block - sizeof(struct header));
    header->bytes = bytes;
    header->mapped = mapped ? (size_t)start : 0;
    return (void *)block;
}

static struct header *header_of(void *block) { return (struct header *)((char *)block - sizeof(struct header)); }

void *malloc(size_t bytes) { return allocate(16, bytes); }

void free(void *block) {
    if (!block || !header_of(block)->mapped) return;
    size_t bytes = header_of(block)->bytes;
    size_t wanted = (bytes + 16 + 2 * sizeof(struct header)) & ~(size_t)15;
    munmap((void *)header_of(block)->mapped, (wanted + PAGE - 1) & ~(PAGE - 1));
}

void *calloc(size_t count, size_t bytes) { return allocate(16, count * bytes); }

void *realloc(void *block, size_t bytes) {
    void *moved = allocate(16, bytes);
    if (moved && block) {
        size_t before = header_of(block)->bytes;
        memcpy(moved, block, before < bytes ? before : bytes);
        free(block);
    }
    return moved;
}

void *memalign(size_t alignment, size_t bytes) { return allocate(alignment < 16 ? 16 : alignment, bytes); }

void *aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }

int posix_memalign(void **out, size_t alignment, size_t bytes) {
    *out = memalign(alignment, bytes);
    return *out ? 0 : ENOMEM;
}

size_t malloc_usable_size(void *block) { return block ? header_of(block)->bytes : 0; }
