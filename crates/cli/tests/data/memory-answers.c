// Memory about which predictions say more than figures: memory_answers.rs and modes/rounded.rs know what is right.
// One argument: the case.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define HUGE (512 * PAGE)
#define FAR __attribute__((noinline, noclone, noipa))

static FAR char *mapped(size_t bytes, int flags) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
}

static FAR void fill(char *at, size_t bytes) {
    for (size_t offset = 0; offset < bytes; offset += PAGE) ((volatile char *)at)[offset] = 1;
}

// A library that advises memory of somebody else.
static FAR void advising(char *at, size_t bytes) { madvise(at, bytes, MADV_HUGEPAGE); }

// Advised, of whole huge pages.
static FAR char *advised(size_t bytes) {
    char *map = mapped(bytes + HUGE, MAP_PRIVATE);
    char *at = (char *)(((uintptr_t)map + HUGE - 1) & -HUGE);
    madvise(at, bytes, MADV_HUGEPAGE);
    return at;
}

static FAR char *unadvised(size_t bytes) { return mapped(bytes, MAP_PRIVATE); }

// A figure of /proc/self/smaps_rollup, in bytes.
static long figure(const char *name) {
    char line[256];
    long kilobytes = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) sscanf(line + strlen(name), ": %ld", &kilobytes);
    if (file) fclose(file);
    return kilobytes * 1024;
}

int main(int argc, char **argv) {
    const char *name = argc > 1 ? argv[1] : "";
    if (!strcmp(name, "rounded")) {
        // Four blocks that the C library aligns within larger mappings, and one that the program aligns itself.
        for (int block = 0; block < 4; block++) {
            char *at = aligned_alloc(HUGE, 8 * HUGE);
            advising(at, 8 * HUGE);
            fill(at, 8 * HUGE);
        }
        char *map = unadvised(9 * HUGE);
        char *at = (char *)(((uintptr_t)map + HUGE - 1) & -HUGE);
        advising(at, 8 * HUGE);
        fill(at, 8 * HUGE);
        printf("%ld\n", figure("AnonHugePages"));
    } else if (!strcmp(name, "lazy")) {
        char *at = unadvised(16 * HUGE);
        fill(at, 16 * HUGE);
        madvise(at, 16 * HUGE, MADV_FREE);
        printf("%ld\n", figure("LazyFree"));
    } else if (!strcmp(name, "advised")) {
        char *at = unadvised(9 * HUGE);
        at = (char *)(((uintptr_t)at + HUGE - 1) & -HUGE);
        advising(at, 4 * HUGE);
        fill(at, 8 * HUGE);
    } else if (!strcmp(name, "copies")) {
        char *at = advised(4 * HUGE);
        fill(at, 4 * HUGE);
        int ends[2];
        if (pipe(ends)) return 1;
        int child = fork();
        if (child == 0) {
            // Until the parent has written.
            close(ends[1]);
            _exit(read(ends[0], ends, 1) != 0);
        }
        fill(at, 4 * HUGE);
        close(ends[1]);
        waitpid(child, 0, 0);
    } else if (!strcmp(name, "zeros-split")) {
        char *at = advised(4 * HUGE);
        for (char *huge = at; huge < at + 4 * HUGE; huge += HUGE) {
            (void)*(volatile char *)huge;
            madvise(huge + 2 * PAGE, PAGE, MADV_DONTNEED);
        }
        fill(at, 4 * HUGE);
    } else if (!strcmp(name, "read-first")) {
        char *at = advised(4 * HUGE);
        for (char *page = at; page < at + 4 * HUGE; page += PAGE) {
            (void)*(volatile char *)page;
            *(volatile char *)page = 1;
        }
    } else if (!strcmp(name, "shared")) {
        fill(mapped(3 * HUGE, MAP_SHARED), 3 * HUGE);
    } else if (!strcmp(name, "pieces")) {
        for (int piece = 0; piece < 128; piece++) fill(malloc(HUGE / 4), HUGE / 4);
    } else if (!strcmp(name, "family")) {
        fill(unadvised(2 * HUGE), 2 * HUGE);
        for (int child = 0; child < 2; child++) {
            if (fork() == 0) {
                fill(unadvised(4 * HUGE), 4 * HUGE);
                _exit(0);
            }
            wait(0);
        }
    } else {
        return 1;
    }
    return 0;
}
