// Makes memory calls at addresses of its own and prints what it did: the calls by name, and each page that it touched
// for the first time since the page was last given up, in order. Arguments: seed, number of calls.

#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 2048, TOUCHES_MAX = 1 << 20 };
#define BASE 0x100000000000ul
enum state { UNMAPPED, ABSENT, PRESENT };

static unsigned char state[PAGES];
static uint16_t touched[TOUCHES_MAX];
static long touches, maps, unmaps, advices, protects, brks;
static uint64_t random_state;

static uint64_t below(uint64_t limit) {
    random_state = random_state * 6364136223846793005ul + 1442695040888963407ul;
    return (random_state >> 33) % limit;
}

static void *address(long page) { return (void *)(BASE + (uint64_t)page * PAGE); }

static void set(long first, long end, int from, int to) {
    for (long page = first; page < end; page++)
        if (from < 0 || state[page] == from) state[page] = to;
}

static void touch(long page) {
    if (state[page] == UNMAPPED || touches == TOUCHES_MAX) return;
    if (state[page] == ABSENT) touched[touches++] = page;
    state[page] = PRESENT;
    *(volatile char *)address(page) = 1;
}

static void check(long failed) {
    if (failed) { perror("call"); exit(1); }
}

static void call(void) {
    long first = below(PAGES - 64), end = first + 1 + below(64);
    size_t bytes = (end - first) * PAGE;
    switch (below(5)) {
    case 0:
    case 1:
        check(mmap(address(first), bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) !=
              address(first));
        set(first, end, -1, ABSENT);
        maps++;
        break;
    case 2:
        check(munmap(address(first), bytes));
        set(first, end, -1, UNMAPPED);
        unmaps++;
        break;
    case 3:
        // Fails where a hole is in the range, but the rest is given up.
        madvise(address(first), bytes, MADV_DONTNEED);
        set(first, end, PRESENT, ABSENT);
        advices++;
        break;
    default:
        for (long page = first; page < end; page++)
            if (state[page] == UNMAPPED) return;
        check(mprotect(address(first), bytes, PROT_READ));
        check(mprotect(address(first), bytes, PROT_READ | PROT_WRITE));
        protects += 2;
    }
    for (int count = below(40); count > 0; count--) touch(first + below(end - first));
}

int main(int argc, char **argv) {
    random_state = argc > 1 ? strtoul(argv[1], 0, 10) : 1;
    long calls = argc > 2 ? atol(argv[2]) : 1000;
    // Present before the first call, so that they do not fault among the calls.
    for (size_t at = 0; at < sizeof touched; at += PAGE) ((volatile char *)touched)[at] = 0;
    madvise(address(0), PAGE, 12345);
    for (long done = 0; done < calls; done++) call();
    for (int grown = 0; grown < 10; grown++, brks++) check(sbrk(2 * PAGE) == (void *)-1);
    madvise(address(0), PAGE, 12346);
    printf("mmap %ld\nmunmap %ld\nmadvise %ld\nmprotect %ld\nbrk %ld\n", maps, unmaps, advices, protects, brks);
    for (long at = 0; at < touches; at++) printf("touch %lx\n", BASE / PAGE + touched[at]);
}
