// Programs whose work in the kernel is known by arithmetic. `cases NAME REPETITIONS` performs one of them, and prints the
// number of each operation in JSON, in the words of hksim's results, and the processor time of the warm-up before them. All
// memory is anonymous. No time is spent in user mode but for the instructions that touch memory.
//
//   cc -O2 -static -o cases cases.c

#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

#define PAGE 4096UL
#define HUGE (2UL << 20)
#define MIB (1UL << 20)
#define PAGES_PER_HUGE (HUGE / PAGE)

enum { SMALL = MADV_NOHUGEPAGE, LARGE = MADV_HUGEPAGE };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void check(int result, const char *what) {
    if (result != 0)
        fail(what);
}

// A mapping on a boundary of 2 MiB, which neighbours no other one: the gaps are not accessible.
static char *map(unsigned long bytes, int pages) {
    char *all = mmap(NULL, bytes + 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        fail("mmap");
    char *start = (char *)(((unsigned long)all + HUGE) & ~(HUGE - 1));
    start = mmap(start, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (start == MAP_FAILED)
        fail("mmap");
    check(madvise(start, bytes, pages), "madvise");
    return start;
}

static void unmap(char *memory, unsigned long bytes) { check(munmap(memory, bytes), "munmap"); }

static void touch(char *memory, unsigned long bytes, unsigned long stride) {
    for (unsigned long at = 0; at < bytes; at += stride)
        *(volatile char *)(memory + at) = 1;
}

static void read_all(char *memory, unsigned long bytes) {
    for (unsigned long at = 0; at < bytes; at += PAGE)
        (void)*(volatile char *)(memory + at);
}

static void advise(char *memory, unsigned long bytes, int advice) { check(madvise(memory, bytes, advice), "madvise"); }

// The counts, printed at the end.
static int printed;

static void count(const char *name, unsigned long number) {
    printf("%s\"%s\": %lu", printed++ ? ", " : "{", name, number);
}

static void touch_small(int times) {
    for (int time = 0; time < times; time++) {
        char *memory = map(32 * MIB, SMALL);
        touch(memory, 32 * MIB, PAGE);
        unmap(memory, 32 * MIB);
    }
    count("base_4k", times * 32 * MIB / PAGE);
    count("unmapped_pages", times * 32 * MIB / PAGE);
}

static void touch_huge(int times) {
    for (int time = 0; time < times; time++) {
        char *memory = map(64 * MIB, LARGE);
        touch(memory, 64 * MIB, HUGE);
        unmap(memory, 64 * MIB);
    }
    count("thp", times * 32);
    count("unmapped_huge_pages", times * 32);
}

// Needs folios of 64 KiB.
static void touch_folios(int times) {
    for (int time = 0; time < times; time++) {
        char *memory = map(32 * MIB, LARGE);
        touch(memory, 32 * MIB, 64 << 10);
        unmap(memory, 32 * MIB);
    }
    count("mthp", times * 512);
    count("unmapped_pages", times * 32 * MIB / PAGE);
}

// Drops the first `pages` pages of each huge page.
static void drop_parts(int times, unsigned long pages) {
    for (int time = 0; time < times; time++) {
        char *memory = map(64 * MIB, LARGE);
        touch(memory, 64 * MIB, HUGE);
        for (int huge = 0; huge < 32; huge++)
            advise(memory + huge * HUGE, pages * PAGE, MADV_DONTNEED);
        unmap(memory, 64 * MIB);
    }
    count("thp", times * 32);
    count("pmd_splits", times * 32);
    count("madv_dontneed_pages", times * 32 * pages);
    count("unmapped_pages", times * 32 * (PAGES_PER_HUGE - pages));
}

static void drop_one_page(int times) { drop_parts(times, 1); }

static void drop_half(int times) { drop_parts(times, PAGES_PER_HUGE / 2); }

static void drop_small(int times) {
    char *memory = map(32 * MIB, SMALL);
    touch(memory, 32 * MIB, PAGE);
    for (int time = 0; time < times; time++) {
        advise(memory, 32 * MIB, MADV_DONTNEED);
        touch(memory, 32 * MIB, PAGE);
    }
    count("base_4k", (times + 1) * 32 * MIB / PAGE);
    count("madv_dontneed_pages", times * 32 * MIB / PAGE);
}

static void drop_huge(int times) {
    char *memory = map(64 * MIB, LARGE);
    touch(memory, 64 * MIB, HUGE);
    for (int time = 0; time < times; time++) {
        advise(memory, 64 * MIB, MADV_DONTNEED);
        touch(memory, 64 * MIB, HUGE);
    }
    count("thp", (times + 1) * 32);
    count("madv_dontneed_huge_pages", times * 32);
}

static void collapse(int times, unsigned long stride) {
    for (int time = 0; time < times; time++) {
        char *memory = map(64 * MIB, SMALL);
        touch(memory, 64 * MIB, stride);
        advise(memory, 64 * MIB, LARGE);
        // While it is recorded, the process has no huge pages and the call fails. The recording has the call.
        madvise(memory, 64 * MIB, MADV_COLLAPSE);
        unmap(memory, 64 * MIB);
    }
    count("base_4k", times * 64 * MIB / stride);
    count("collapsed_pmds", times * 32);
    count("collapsed_present_pages", times * 64 * MIB / stride);
    count("unmapped_huge_pages", times * 32);
}

static void collapse_full(int times) { collapse(times, PAGE); }

static void collapse_sparse(int times) { collapse(times, HUGE); }

static void free_small(int times) {
    char *memory = map(32 * MIB, SMALL);
    touch(memory, 32 * MIB, PAGE);
    for (int time = 0; time < times; time++) {
        advise(memory, 32 * MIB, MADV_FREE);
        touch(memory, 32 * MIB, PAGE);
    }
    count("base_4k", 32 * MIB / PAGE);
    count("madv_free_pages", times * 32 * MIB / PAGE);
}

static void free_huge(int times) {
    char *memory = map(64 * MIB, LARGE);
    touch(memory, 64 * MIB, HUGE);
    for (int time = 0; time < times; time++) {
        advise(memory, 64 * MIB, MADV_FREE);
        touch(memory, 64 * MIB, HUGE);
    }
    count("thp", 32);
    count("madv_free_huge_pages", times * 32);
}

static void move(int times, unsigned long bytes, int pages, unsigned long stride) {
    char *from = map(bytes, pages), *to = map(bytes, pages);
    touch(from, bytes, stride);
    for (int time = 0; time < times; time++) {
        if (mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) == MAP_FAILED)
            fail("mremap");
        char *other = from;
        from = to;
        to = other;
    }
}

static void move_small(int times) {
    move(times, 32 * MIB, SMALL, PAGE);
    count("base_4k", 32 * MIB / PAGE);
    count("mremap_pte_tables", times * 16);
}

static void move_huge(int times) {
    move(times, 64 * MIB, LARGE, HUGE);
    count("thp", 32);
    count("mremap_huge_pages", times * 32);
}

// Moves two pages of each 2 MiB at a time, so that no page table moves whole.
static void move_pages(int times) {
    char *from = map(2 * MIB, SMALL), *to = map(2 * MIB, SMALL);
    touch(from, 2 * MIB, PAGE);
    for (int time = 0; time < times; time++) {
        for (unsigned long at = 0; at < HUGE; at += 16 * PAGE)
            if (mremap(from + at, 16 * PAGE, 16 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + at) == MAP_FAILED)
                fail("mremap");
        char *other = from;
        from = to;
        to = other;
    }
    count("base_4k", PAGES_PER_HUGE);
    count("remap_calls", times * HUGE / (16 * PAGE));
}

// Forks a child that waits until the parent has written to its memory.
static void fork_and_write(int times, unsigned long bytes, int pages, unsigned long stride, unsigned long write_stride) {
    char *memory = map(bytes, pages);
    touch(memory, bytes, stride);
    signal(SIGCHLD, SIG_IGN);
    for (int time = 0; time < times; time++) {
        int ends[2];
        check(pipe(ends), "pipe");
        pid_t child = fork();
        if (child < 0)
            fail("fork");
        if (child == 0) {
            char byte;
            close(ends[1]);
            _exit(read(ends[0], &byte, 1) != 0);
        }
        touch(memory, bytes, write_stride);
        close(ends[0]);
        close(ends[1]);
        // The child is not waited for, so that its times are not added to this process's. This returns when it has ended.
        waitpid(child, NULL, 0);
    }
}

static void fork_copies(int times) {
    fork_and_write(times, 32 * MIB, SMALL, PAGE, PAGE);
    count("base_4k", 32 * MIB / PAGE);
    count("forks", times);
    count("copied_pages", times * 32 * MIB / PAGE);
}

// One write to each of 32 huge pages, in a copy of its own for each fork.
static void fork_huge(int times) {
    for (int time = 0; time < times; time++)
        fork_and_write(1, 64 * MIB, LARGE, HUGE, HUGE);
    count("thp", times * 32);
    count("forks", times);
    count("copies_with_split", times * 32);
}

// Needs 16 free pages in the pool.
static void hugetlb(int times) {
    for (int time = 0; time < times; time++) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
        char *memory = mmap(NULL, 32 * MIB, PROT_READ | PROT_WRITE, flags, -1, 0);
        if (memory == MAP_FAILED)
            fail("mmap of hugetlb pages");
        touch(memory, 32 * MIB, HUGE);
        unmap(memory, 32 * MIB);
    }
    count("hugetlb", times * 16);
    count("unmapped_hugetlb_pages", times * 16);
}

static void map_populate(int times) {
    for (int time = 0; time < times; time++) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE;
        // An odd number of pages, and smaller than a huge page: single pages in any mode but always with folios.
        for (int part = 0; part < 16; part++) {
            char *memory = mmap(NULL, HUGE - PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
            if (memory == MAP_FAILED)
                fail("mmap");
            unmap(memory, HUGE - PAGE);
        }
    }
    count("populated_pages", times * 16 * (PAGES_PER_HUGE - 1));
    count("unmapped_pages", times * 16 * (PAGES_PER_HUGE - 1));
}

static void populate_write(int times) {
    for (int time = 0; time < times; time++) {
        char *memory = map(32 * MIB, SMALL);
        advise(memory, 32 * MIB, MADV_POPULATE_WRITE);
        unmap(memory, 32 * MIB);
    }
    count("populated_pages", times * 32 * MIB / PAGE);
    count("unmapped_pages", times * 32 * MIB / PAGE);
}

static void read_zero(int times) {
    for (int time = 0; time < times; time++) {
        char *memory = map(32 * MIB, SMALL);
        read_all(memory, 32 * MIB);
        unmap(memory, 32 * MIB);
    }
    count("zero", times * 32 * MIB / PAGE);
}

static void read_then_write(int times) {
    for (int time = 0; time < times; time++) {
        char *memory = map(32 * MIB, SMALL);
        read_all(memory, 32 * MIB);
        touch(memory, 32 * MIB, PAGE);
        unmap(memory, 32 * MIB);
    }
    count("zero", times * 32 * MIB / PAGE);
    count("cow", times * 32 * MIB / PAGE);
    count("unmapped_pages", times * 32 * MIB / PAGE);
}

// Maps, touches and unmaps 16 KiB at a time.
static void map_pieces(int times) {
    for (int time = 0; time < times; time++)
        for (int piece = 0; piece < 1000; piece++) {
            char *memory = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (memory == MAP_FAILED)
                fail("mmap");
            touch(memory, 4 * PAGE, PAGE);
            unmap(memory, 4 * PAGE);
        }
    count("base_4k", times * 4000);
    count("map_calls", times * 1000);
    count("unmap_calls", times * 1000);
    count("unmapped_pages", times * 4000);
}

// Memory that is still there at the end of the process.
static void exit_small(int times) {
    for (int time = 0; time < times; time++)
        touch(map(32 * MIB, SMALL), 32 * MIB, PAGE);
    count("base_4k", times * 32 * MIB / PAGE);
    count("pages", times * 32 * MIB / PAGE);
}

static const struct {
    const char *name;
    void (*run)(int times);
} CASES[] = {
    {"touch-small", touch_small},
    {"touch-huge", touch_huge},
    {"touch-folios", touch_folios},
    {"drop-one-page", drop_one_page},
    {"drop-half", drop_half},
    {"drop-small", drop_small},
    {"drop-huge", drop_huge},
    {"collapse-full", collapse_full},
    {"collapse-sparse", collapse_sparse},
    {"free-small", free_small},
    {"free-huge", free_huge},
    {"move-small", move_small},
    {"move-huge", move_huge},
    {"move-pages", move_pages},
    {"fork-copies", fork_copies},
    {"fork-huge", fork_huge},
    {"hugetlb", hugetlb},
    {"map-populate", map_populate},
    {"populate-write", populate_write},
    {"read-zero", read_zero},
    {"read-then-write", read_then_write},
    {"map-pieces", map_pieces},
    {"exit-small", exit_small},
};

// Touches more memory than most cases use: free memory may be without backing by the host of a virtual machine. Returns
// the processor time of the process so far, in seconds.
static double warm_up(void) {
    for (int time = 0; time < 2; time++) {
        char *memory = map(96 * MIB, LARGE);
        touch(memory, 96 * MIB, HUGE);
        unmap(memory, 96 * MIB);
    }
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

// The machine's speed: the median processor time of first touches of 4 MiB that the process has had before, in seconds.
static double control(int times) {
    double took[99];
    times = times < 1 ? 1 : times > 99 ? 99 : times;
    for (int time = -3; time < times; time++) {
        char *memory = map(4 * MIB, SMALL);
        struct timespec before, after;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
        touch(memory, 4 * MIB, PAGE);
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
        unmap(memory, 4 * MIB);
        double seconds = after.tv_sec - before.tv_sec + (after.tv_nsec - before.tv_nsec) / 1e9;
        int at = time < 0 ? 0 : time;
        for (; at > 0 && took[at - 1] > seconds; at--)
            took[at] = took[at - 1];
        took[at] = seconds;
    }
    return took[times / 2];
}

int main(int argc, char **argv) {
    for (unsigned long at = 0; argc == 3 && at < sizeof CASES / sizeof *CASES; at++)
        if (strcmp(argv[1], CASES[at].name) == 0) {
            double warm_up_s = warm_up();
            CASES[at].run(atoi(argv[2]));
            printf("%s\"warm_up_s\": %.9f}\n", printed ? ", " : "{", warm_up_s);
            return 0;
        }
    if (argc == 3 && strcmp(argv[1], "control") == 0)
        return printf("%.9f\n", control(atoi(argv[2]))) < 0;
    fprintf(stderr, "usage: cases NAME REPETITIONS\n");
    return 2;
}
