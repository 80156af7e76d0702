// Random calls and touches of anonymous memory: `random SEED STEPS`. The same seed makes the same calls; sizes and
// offsets do not depend on addresses.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define BLOCKS 24
#define RW (PROT_READ | PROT_WRITE)

static uint64_t state;

// xorshift64*
static uint64_t draw(uint64_t below) {
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (state * 2685821657736338717ull >> 11) % below;
}

static struct {
    char *start;
    uint64_t pages;
} blocks[BLOCKS];

static uint64_t pages_drawn(void) { return draw(3) ? 1 + draw(1500) : 1 + draw(20); }

static void create(int at) {
    uint64_t pages = pages_drawn();
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    if (draw(8) == 0) flags |= MAP_POPULATE;
    if (draw(8) == 0) flags |= MAP_NORESERVE;
    if (draw(12) == 0) flags |= MAP_STACK;
    if (blocks[at].pages > 4 && draw(3) == 0) {
        // Over a part of an old block.
        uint64_t first = draw(blocks[at].pages), count = 1 + draw(blocks[at].pages - first);
        mmap(blocks[at].start + first * PAGE, count * PAGE, RW, flags | MAP_FIXED, -1, 0);
        return;
    }
    if (blocks[at].pages && draw(2)) munmap(blocks[at].start, blocks[at].pages * PAGE);
    blocks[at].start = mmap(NULL, pages * PAGE, RW, flags, -1, 0);
    blocks[at].pages = blocks[at].start == MAP_FAILED ? 0 : pages;
}

static void touch(int at) {
    uint64_t first = draw(blocks[at].pages), count = 1 + draw(blocks[at].pages - first);
    uint64_t stride = draw(3) ? 1 : 1 + draw(40);
    int writes = draw(4) != 0;
    for (uint64_t page = first; page < first + count; page += stride) {
        volatile char *byte = blocks[at].start + page * PAGE;
        if (writes) *byte = 1;
        else (void)*byte;
    }
}

static void change(int at) {
    static const int kinds[] = {MADV_DONTNEED, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_COLD, MADV_POPULATE_READ,
        MADV_POPULATE_WRITE, MADV_RANDOM, MADV_NORMAL};
    uint64_t first = draw(blocks[at].pages), count = 1 + draw(blocks[at].pages - first);
    char *start = blocks[at].start + first * PAGE;
    switch (draw(6)) {
    case 0:
        mprotect(start, count * PAGE, PROT_READ);
        mprotect(start, count * PAGE, RW);
        break;
    case 1: mlock(start, count * PAGE); break;
    case 2: munlock(start, count * PAGE); break;
    default: madvise(start, count * PAGE, kinds[draw(sizeof kinds / sizeof *kinds)]);
    }
}

static void resize(int at) {
    uint64_t pages = pages_drawn();
    char *moved = mremap(blocks[at].start, blocks[at].pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
    if (moved == MAP_FAILED) return;
    blocks[at].start = moved;
    blocks[at].pages = pages;
}

static void shrink(int at) {
    uint64_t count = 1 + draw(blocks[at].pages);
    munmap(blocks[at].start + (blocks[at].pages - count) * PAGE, count * PAGE);
    blocks[at].pages -= count;
}

static void fork_child(int at) {
    pid_t child = fork();
    if (child == 0) {
        for (int step = 0; step < 5; step++) touch(at);
        _exit(0);
    }
    // Both sides must draw the same numbers: the child has its own copy of the state.
    waitpid(child, NULL, 0);
}

static void heap(void) {
    static char *low;
    if (!low) low = sbrk(0);
    long bytes = (long)draw(3000000) - 1000000;
    char *end = sbrk(0);
    if (end + bytes < low) bytes = low - end;
    if (sbrk(bytes) == (void *)-1) return;
    for (char *byte = end; byte < end + bytes; byte += PAGE * (1 + draw(3))) *byte = 1;
}

int main(int count, char **words) {
    if (count < 3) return 2;
    state = strtoull(words[1], NULL, 10) * 2654435769u + 88172645463325252ull;
    int forks = count > 3;
    for (long left = atol(words[2]); left > 0; left--) {
        int at = draw(BLOCKS);
        uint64_t kind = draw(20);
        if (blocks[at].pages == 0 || kind < 2) create(at);
        else if (kind < 11) touch(at);
        else if (kind < 15) change(at);
        else if (kind < 16) resize(at);
        else if (kind < 17) shrink(at);
        else if (kind < 18) heap();
        else if (forks && draw(8) == 0) fork_child(at);
    }
    return 0;
}
