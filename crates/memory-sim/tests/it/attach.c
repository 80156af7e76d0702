/* Changes memory at random in two phases, and counts its own calls of the second one. Between the phases it waits for
 * a line on its standard input, so that a recorder can attach to it in the middle.
 *
 * attach SEED OPERATIONS WAY [THREADS]
 *
 * WAY: "huge" advises huge pages, "lazy" gives pages up with MADV_FREE, "forks" forks children in both phases; they
 * wait for the end. Each thread has an arena of its own. It prints "ready", then "done" and the numbers of its calls of
 * mmap, munmap, mprotect, madvise, mremap and brk in the second phase.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 4096, SLOT_PAGES = 1000, THREADS_MAX = 16, CHILDREN_MAX = 8 };
enum { MMAP, MUNMAP, MPROTECT, MADVISE, MREMAP, BRK, CALLS };

static int huge, lazy, forks, operations;
static pthread_barrier_t barrier;
static uint64_t totals[CALLS];
static int children[CHILDREN_MAX], child_count, child_pipe[2];

struct arena {
    uint64_t random;
    unsigned char *base;
    char rights[PAGES]; /* 'w': writable, 'n': no access, 'u': unmapped */
    uint64_t calls[CALLS];
    unsigned char *grown;
    size_t grown_pages;
    unsigned char *slots; /* two places for it, so that it does not move into a hole of an arena */
    int slot;
    int is_first;
};

static uint64_t below(struct arena *a, uint64_t end) {
    a->random ^= a->random << 13;
    a->random ^= a->random >> 7;
    a->random ^= a->random << 17;
    return a->random % end;
}

static void check(int holds, const char *what) {
    if (!holds) {
        perror(what);
        _exit(9);
    }
}

static void *map(struct arena *a, void *at, size_t pages) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED : 0);
    void *made = (void *)syscall(SYS_mmap, at, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0L);
    check(made != MAP_FAILED, "mmap");
    a->calls[MMAP]++;
    return made;
}

static void advise(struct arena *a, size_t first, size_t pages, int advice) {
    check(madvise(a->base + first * PAGE, pages * PAGE, advice) == 0, "madvise");
    a->calls[MADVISE]++;
}

static int all(struct arena *a, size_t first, size_t pages, char right) {
    for (size_t page = first; page < first + pages; page++)
        if (a->rights[page] != right) return 0;
    return 1;
}

static int mapped(struct arena *a, size_t first, size_t pages) {
    for (size_t page = first; page < first + pages; page++)
        if (a->rights[page] == 'u') return 0;
    return 1;
}

static void operate(struct arena *a) {
    size_t first = below(a, PAGES), pages = 1 + below(a, below(a, 4) ? 64 : 1200);
    if (below(a, 3) == 0) first &= ~(size_t)511;
    if (pages > PAGES - first) pages = PAGES - first;
    switch (below(a, 12)) {
    case 0: case 1: case 2: case 3: { /* write, every page or some */
        size_t step = 1 + below(a, 3) * below(a, 9);
        for (size_t page = first; page < first + pages; page += step)
            if (a->rights[page] == 'w') ((volatile unsigned char *)a->base)[page * PAGE + 8] = 1 + page % 200;
        break;
    }
    case 4: /* read */
        for (size_t page = first; page < first + pages; page++)
            if (a->rights[page] == 'w') (void)((volatile unsigned char *)a->base)[page * PAGE];
        break;
    case 5:
        if (mapped(a, first, pages)) advise(a, first, pages, MADV_DONTNEED);
        break;
    case 6:
        if (lazy && all(a, first, pages, 'w')) advise(a, first, pages, MADV_FREE);
        if (huge && mapped(a, first, pages)) advise(a, first, pages, below(a, 4) ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
        break;
    case 7:
        check(munmap(a->base + first * PAGE, pages * PAGE) == 0, "munmap");
        a->calls[MUNMAP]++;
        memset(a->rights + first, 'u', pages);
        break;
    case 8:
        map(a, a->base + first * PAGE, pages);
        memset(a->rights + first, 'w', pages);
        break;
    case 9:
        if (mapped(a, first, pages)) {
            int has = below(a, 3) > 0;
            check(mprotect(a->base + first * PAGE, pages * PAGE, has ? PROT_READ | PROT_WRITE : PROT_NONE) == 0, "mprotect");
            a->calls[MPROTECT]++;
            memset(a->rights + first, has ? 'w' : 'n', pages);
        }
        break;
    case 10: { /* a mapping that mremap grows and moves */
        size_t wanted = 1 + below(a, 900);
        a->slot ^= 1;
        void *to = a->slots + a->slot * SLOT_PAGES * PAGE;
        void *now = mremap(a->grown, a->grown_pages * PAGE, wanted * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
        check(now != MAP_FAILED, "mremap");
        a->calls[MREMAP]++;
        a->grown = now, a->grown_pages = wanted;
        for (size_t page = 0; page < wanted; page += 1 + below(a, 5)) ((volatile unsigned char *)a->grown)[page * PAGE] = 3;
        break;
    }
    case 11:
        if (a->is_first) { /* the heap of brk, which only one thread may change */
            static uintptr_t start, end;
            if (!start) {
                start = end = syscall(SYS_brk, 0L);
                a->calls[BRK]++;
            }
            uintptr_t wanted = start + (1 + below(a, 700)) * PAGE;
            check((uintptr_t)syscall(SYS_brk, wanted) == wanted, "brk");
            a->calls[BRK]++;
            end = wanted;
            for (uintptr_t at = start; at + PAGE <= end; at += (1 + below(a, 9)) * PAGE) *(volatile unsigned char *)at = 5;
        }
        break;
    }
}

static void fork_child(struct arena *a) {
    int pid = fork();
    check(pid >= 0, "fork");
    if (pid == 0) {
        char byte;
        for (int count = 0; count < 40; count++) {
            size_t page = below(a, PAGES);
            if (a->rights[page] == 'w') ((volatile unsigned char *)a->base)[page * PAGE + 16] = 7;
        }
        close(child_pipe[1]);
        read(child_pipe[0], &byte, 1);
        _exit(0);
    }
    children[child_count++] = pid;
}

/* Huge pages, which random operations soon split: there at the start, split, dropped and installed anew afterwards. */
static void huge_pages(struct arena *a, int is_second) {
    size_t at = PAGES; /* after the random part */
    volatile unsigned char *base = a->base;
    if (!is_second) {
        advise(a, at, 4 * 512, MADV_HUGEPAGE);
        for (size_t page = at; page < at + 3 * 512; page++) base[page * PAGE] = 1;
        return;
    }
    advise(a, at + 100, 50, MADV_DONTNEED);                     /* splits the first one */
    for (size_t page = at + 90; page < at + 120; page++) base[page * PAGE] = 2;
    advise(a, at + 512, 512, MADV_DONTNEED);                    /* drops the second one */
    base[(at + 512 + 77) * PAGE] = 3;                           /* and installs one */
    base[(at + 3 * 512 + 5) * PAGE] = 4;                        /* the fourth one */
}

static void phase(struct arena *a) {
    for (int count = 0; count < operations; count++) {
        operate(a);
        if (forks && a->is_first && count % (operations / 3) == 1 && child_count < CHILDREN_MAX) fork_child(a);
    }
}

static void *run(void *argument) {
    struct arena *a = argument;
    a->base = map(a, NULL, PAGES + 5 * 512);
    a->base = (unsigned char *)(((uintptr_t)a->base + 511 * PAGE) & ~(uintptr_t)(512 * PAGE - 1));
    a->slots = map(a, NULL, 2 * SLOT_PAGES);
    a->grown = map(a, a->slots, 10);
    a->grown_pages = 10;
    memset(a->rights, 'w', PAGES);
    if (huge) advise(a, 0, PAGES / 2, MADV_HUGEPAGE);
    pthread_barrier_wait(&barrier);
    phase(a);
    if (huge) huge_pages(a, 0);
    memset(a->calls, 0, sizeof a->calls);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    phase(a);
    if (huge) huge_pages(a, 1);
    for (int call = 0; call < CALLS; call++) __atomic_add_fetch(&totals[call], a->calls[call], __ATOMIC_RELAXED);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return NULL;
}

static void await(void) {
    char byte;
    while (read(0, &byte, 1) == 1 && byte != '\n') {}
}

int main(int count, char **words) {
    static struct arena arenas[THREADS_MAX];
    static pthread_t threads[THREADS_MAX];
    static char text[200];
    if (count < 4) return 8;
    operations = atoi(words[2]);
    huge = !strcmp(words[3], "huge"), lazy = !strcmp(words[3], "lazy"), forks = !strcmp(words[3], "forks");
    int thread_count = count > 4 ? atoi(words[4]) : 1;
    check(pipe(child_pipe) == 0, "pipe");
    pthread_barrier_init(&barrier, NULL, thread_count + 1);
    for (int thread = 0; thread < thread_count; thread++) {
        arenas[thread].random = 88172645463325252ull + 977 * (atoll(words[1]) * THREADS_MAX + thread);
        arenas[thread].is_first = thread == 0;
        check(pthread_create(&threads[thread], NULL, run, &arenas[thread]) == 0, "pthread_create");
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    write(1, "ready\n", 6);
    await();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    int bytes = snprintf(text, sizeof text, "done %lu %lu %lu %lu %lu %lu\n", totals[MMAP], totals[MUNMAP],
                         totals[MPROTECT], totals[MADVISE], totals[MREMAP], totals[BRK]);
    write(1, text, bytes);
    await();
    _exit(0);
}
