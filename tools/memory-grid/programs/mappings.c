// Programs that change anonymous memory in one unusual way each: `mappings CASE`.
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#define PAGE 4096ul
#define MIB (1ul << 20)
#define RW (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static char *map_at(void *hint, size_t bytes, int protection, int flags) {
    char *start = mmap(hint, bytes, protection, PRIVATE | flags, -1, 0);
    if (start == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return start;
}

static char *map(size_t bytes) { return map_at(NULL, bytes, RW, 0); }

static void write_pages(char *start, size_t bytes, size_t stride) {
    for (size_t at = 0; at < bytes; at += stride) start[at] = 1;
}

static unsigned long read_pages(const volatile char *start, size_t bytes, size_t stride) {
    unsigned long sum = 0;
    for (size_t at = 0; at < bytes; at += stride) sum += start[at];
    return sum;
}

static void remap(void) {
    char *block = map(3 * MIB);
    write_pages(block, 3 * MIB, PAGE);
    size_t bytes = 3 * MIB;
    for (int round = 0; round < 12; round++) {
        size_t grown = bytes + bytes / 2 / PAGE * PAGE;
        block = mremap(block, bytes, grown, MREMAP_MAYMOVE);
        write_pages(block + bytes, grown - bytes, PAGE);
        bytes = grown;
    }
    block = mremap(block, bytes, 5 * MIB + PAGE, 0);
    char *target = map(8 * MIB);
    write_pages(target, 8 * MIB, 3 * PAGE);
    block = mremap(block, 5 * MIB + PAGE, 4 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, target + MIB);
    write_pages(block, 4 * MIB, PAGE);
    // A part of a mapping moves, and leaves a hole; another part stays mapped but empty.
    char *rest = map(16 * MIB);
    write_pages(rest, 16 * MIB, PAGE);
    char *moved = mremap(rest + 5 * MIB, 3 * MIB, 6 * MIB, MREMAP_MAYMOVE);
    write_pages(moved, 6 * MIB, PAGE);
    char *kept = mremap(rest + 9 * MIB, 2 * MIB, 2 * MIB, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, NULL);
    if (kept != MAP_FAILED) write_pages(rest + 9 * MIB, 2 * MIB, PAGE);
}

static void fixed(void) {
    char *block = map(32 * MIB);
    write_pages(block, 32 * MIB, PAGE);
    for (int round = 0; round < 10; round++) {
        map_at(block + round * 3 * MIB + 5 * PAGE, MIB + round * PAGE, RW, MAP_FIXED);
        write_pages(block + round * 3 * MIB, MIB, PAGE);
    }
    map_at(block + 7 * MIB, 4 * MIB, PROT_NONE, MAP_FIXED | MAP_NORESERVE);
    munmap(block + 20 * MIB + PAGE, 3 * MIB);
    map_at(block + 21 * MIB, MIB, RW, MAP_FIXED_NOREPLACE);
    write_pages(block + 21 * MIB, MIB, PAGE);
}

static void reserve(void) {
    // As managed runtimes do: reserve, then commit by mprotect or by MAP_FIXED, and give back by MADV_DONTNEED.
    char *space = map_at(NULL, 1024 * MIB, PROT_NONE, MAP_NORESERVE);
    for (size_t at = 0; at < 64; at++) {
        mprotect(space + at * MIB, MIB, RW);
        write_pages(space + at * MIB, MIB, PAGE);
    }
    for (size_t at = 256; at < 300; at += 2) {
        map_at(space + at * MIB, MIB + MIB / 2, RW, MAP_FIXED);
        write_pages(space + at * MIB, MIB + MIB / 2, 5 * PAGE);
    }
    madvise(space + 10 * MIB, 20 * MIB + PAGE, MADV_DONTNEED);
    mprotect(space + 12 * MIB, 10 * MIB, PROT_NONE);
    mprotect(space + 12 * MIB, 10 * MIB, RW);
    write_pages(space + 10 * MIB, 20 * MIB, 2 * PAGE);
    munmap(space + 512 * MIB, 512 * MIB);
}

static void unmap(void) {
    char *block = map(64 * MIB);
    write_pages(block, 64 * MIB, PAGE);
    for (size_t at = 0; at < 64 * MIB; at += 5 * MIB + 7 * PAGE) munmap(block + at, 9 * PAGE);
    for (size_t at = MIB; at < 60 * MIB; at += 11 * MIB) munmap(block + at, 2 * MIB);
    for (int round = 0; round < 30; round++) {
        char *again = map((round + 1) * 100 * PAGE);
        write_pages(again, (round + 1) * 100 * PAGE, PAGE);
        if (round % 3) munmap(again, (round + 1) * 50 * PAGE);
    }
}

static void populate(void) {
    char *block = map_at(NULL, 9 * MIB + PAGE, RW, MAP_POPULATE);
    write_pages(block, 9 * MIB, PAGE);
    char *readonly = map_at(NULL, 9 * MIB, PROT_READ, MAP_POPULATE);
    read_pages(readonly, 9 * MIB, PAGE);
    mprotect(readonly, 9 * MIB, RW);
    write_pages(readonly, 9 * MIB, PAGE);
    map_at(NULL, 3 * MIB, PROT_NONE, MAP_POPULATE);
    char *later = map(12 * MIB);
    madvise(later, 5 * MIB, MADV_POPULATE_READ);
    madvise(later + 4 * MIB, 5 * MIB, MADV_POPULATE_WRITE);
    write_pages(later, 12 * MIB, PAGE);
}

static void lock(void) {
    char *before = map(7 * MIB);
    write_pages(before, 3 * MIB, PAGE);
    mlock(before + 100, 5000);
    if (mlockall(MCL_CURRENT)) perror("mlockall");
    munlockall();
    mlockall(MCL_FUTURE);
    char *locked = map(5 * MIB);
    read_pages(locked, 5 * MIB, PAGE);
    sbrk(3 * MIB);
    munlockall();
    mlockall(MCL_FUTURE | MCL_ONFAULT);
    char *lazy = map(5 * MIB);
    write_pages(lazy, 3 * MIB, 2 * PAGE);
    munlockall();
    char *part = map(6 * MIB);
    mlock2(part + MIB + 17, 2 * MIB, MLOCK_ONFAULT);
    write_pages(part, 6 * MIB, 2 * PAGE);
    munlock(part + MIB + 17, 2 * MIB);
    char *flag = map_at(NULL, 5 * MIB, RW, MAP_LOCKED);
    write_pages(flag, 5 * MIB, PAGE);
}

static void advice(void) {
    static const int kinds[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_WILLNEED, MADV_DONTNEED, MADV_FREE,
        MADV_DONTFORK, MADV_DOFORK, MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP,
        MADV_DODUMP, MADV_WIPEONFORK, MADV_KEEPONFORK, MADV_COLD, MADV_POPULATE_READ,
        MADV_POPULATE_WRITE, 24 /* DONTNEED_LOCKED */, 25 /* COLLAPSE */, 102 /* GUARD_INSTALL */, 103, 77};
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        char *block = map(8 * MIB);
        read_pages(block, MIB, PAGE);
        write_pages(block + MIB, 3 * MIB, PAGE);
        madvise(block + MIB / 2, 5 * MIB, kinds[kind]);
        if (kinds[kind] == 102) madvise(block, 8 * MIB, 103);
        write_pages(block, 8 * MIB, PAGE);
        madvise(block + PAGE, 20 * MIB, kinds[kind]);
        if (kinds[kind] == 102) madvise(block, 8 * MIB, 103);
        read_pages(block, 8 * MIB, PAGE);
    }
}

/// Partly locked memory refuses MADV_DONTNEED after the part before it was dropped.
static void refused(void) {
    char *block = map(8 * MIB);
    write_pages(block, 8 * MIB, PAGE);
    mlock(block + 4 * MIB, MIB);
    if (madvise(block + MIB, 6 * MIB, MADV_DONTNEED) == 0 || madvise(block + 7, MIB, MADV_DONTNEED) == 0) exit(1);
    write_pages(block, 8 * MIB, 2 * PAGE);
}

static void page_out(void) {
    char *block = map(8 * MIB);
    write_pages(block, 8 * MIB, PAGE);
    madvise(block + MIB / 2, 5 * MIB, MADV_PAGEOUT);
    write_pages(block, 8 * MIB, PAGE);
}

static void brk_moves(void) {
    char *start = sbrk(0);
    sbrk(9 * MIB);
    write_pages(start, 9 * MIB, PAGE);
    sbrk(-(long)(3 * MIB + 5000));
    sbrk(5 * MIB);
    write_pages(start, 10 * MIB, PAGE);
    brk(start + 100);
    for (int step = 0; step < 400; step++) {
        char *old = sbrk(13 * PAGE + 24);
        write_pages(old, 13 * PAGE, PAGE);
    }
    if (brk((void *)(1ul << 62)) == 0) puts("the heap grew to the end of the address space");
    // A second mapping in the way of the heap.
    char *end = (char *)(((unsigned long)sbrk(0) + PAGE - 1) & -PAGE);
    map_at(end + 3 * MIB, PAGE, RW, MAP_FIXED_NOREPLACE);
    if (sbrk(8 * MIB) == (void *)-1) sbrk(2 * MIB);
    write_pages(end, 2 * MIB, PAGE);
}

static char bss[37 * MIB];

static void zeroed_data(void) {
    write_pages(bss, sizeof bss, PAGE);
    char *start = sbrk(6 * MIB);
    write_pages(start, 6 * MIB, PAGE);
    munmap((void *)(((unsigned long)bss + 11 * MIB) & -PAGE), MIB);
}

static int __attribute__((noinline)) deep(int depth) {
    volatile char frame[3000];
    memset((char *)frame, depth, sizeof frame);
    return depth ? deep(depth - 1) + frame[7] : 0;
}

static void stack(void) {
    struct rlimit limit;
    getrlimit(RLIMIT_STACK, &limit);
    unsigned long bytes = limit.rlim_cur > 8 * MIB ? 8 * MIB : limit.rlim_cur;
    deep((bytes - 300000) / 3200);
    char *block = map(4 * MIB);
    write_pages(block, 4 * MIB, PAGE);
}

static void grows_down(void) {
    char *area = map(64 * MIB);
    munmap(area, 64 * MIB);
    char *top = map_at(area + 32 * MIB, 4 * PAGE, RW, MAP_GROWSDOWN | MAP_FIXED);
    for (int page = 0; page < 1000; page++) top[-page * (long)PAGE] = 1;
    char *plain = map(6 * MIB);
    write_pages(plain, 6 * MIB, PAGE);
}

static void protect(void) {
    char *block = map(24 * MIB);
    read_pages(block, 12 * MIB, PAGE);
    write_pages(block + 6 * MIB, 12 * MIB, PAGE);
    mprotect(block + 5 * MIB, 8 * MIB + PAGE, PROT_READ);
    read_pages(block, 24 * MIB, PAGE);
    mprotect(block + 5 * MIB, 8 * MIB + PAGE, RW);
    write_pages(block, 24 * MIB, 3 * PAGE);
    mprotect(block + 3 * PAGE, 2 * PAGE, PROT_NONE);
    mprotect(block + 3 * PAGE, 2 * PAGE, RW | PROT_EXEC);
    write_pages(block, 24 * MIB, PAGE);
    mprotect(block + 20 * MIB, 40 * MIB, PROT_READ);
}

static void named(void) {
    char *block = map(8 * MIB);
    prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, block + MIB, 3 * MIB, "one");
    write_pages(block, 8 * MIB, PAGE);
    prctl(PR_SET_VMA, PR_SET_VMA_ANON_NAME, block + MIB, 3 * MIB, NULL);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    write_pages(map(5 * MIB), 5 * MIB, PAGE);
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    write_pages(map(5 * MIB), 5 * MIB, PAGE);
    if (prctl(PR_SET_THP_DISABLE, 1, 2, 0, 0)) perror("prctl");
    char *advised = map(5 * MIB);
    madvise(advised, 5 * MIB, MADV_HUGEPAGE);
    write_pages(advised, 5 * MIB, PAGE);
    write_pages(map(5 * MIB), 5 * MIB, PAGE);
}

static void zero_page(void) {
    char *block = map(16 * MIB);
    read_pages(block, 16 * MIB, PAGE);
    write_pages(block + MIB, 2 * MIB, 7 * PAGE);
    madvise(block + 4 * MIB, 4 * MIB, MADV_DONTNEED);
    write_pages(block + 4 * MIB, 4 * MIB, 9 * PAGE);
    munmap(block + 9 * MIB, 3 * PAGE);
    madvise(block + 11 * MIB, 3 * PAGE, MADV_DONTNEED);
    write_pages(block + 12 * MIB, 4 * MIB, 100 * PAGE);
}

static void code(void) {
    char *block = map_at(NULL, 8 * MIB, RW | PROT_EXEC, 0);
    for (size_t at = 0; at < 8 * MIB; at += 3 * PAGE) {
        block[at] = (char)0xc3;
        ((void (*)(void))(block + at))();
    }
    char *unwritten = map_at(NULL, 4 * MIB, PROT_READ | PROT_EXEC, 0);
    read_pages(unwritten, 4 * MIB, PAGE);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"remap", remap}, {"fixed", fixed}, {"reserve", reserve}, {"unmap", unmap}, {"populate", populate},
    {"lock", lock}, {"advice", advice}, {"refused", refused}, {"pageout", page_out}, {"brk", brk_moves}, {"bss", zeroed_data}, {"stack", stack},
    {"growsdown", grows_down}, {"protect", protect}, {"named", named}, {"zero", zero_page}, {"code", code}};

int main(int count, char **words) {
    for (size_t index = 0; count > 1 && index < sizeof cases / sizeof *cases; index++) {
        if (strcmp(cases[index].name, words[1]) == 0) {
            cases[index].run();
            return 0;
        }
    }
    fputs("usage: mappings CASE\n", stderr);
    return 2;
}
