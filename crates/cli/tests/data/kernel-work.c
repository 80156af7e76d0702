// Page operations whose work for the kernel is known by arithmetic: kernel_work.rs has the figures. One argument: the case.
#define _GNU_SOURCE
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define HUGE (512 * PAGE)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

// Aligned anonymous memory.
static volatile char *area(unsigned long bytes) {
    char *at = mmap(0, bytes + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return (char *)(((uintptr_t)at + HUGE - 1) & -HUGE);
}

static void fill(volatile char *at, unsigned long bytes) {
    for (unsigned long offset = 0; offset < bytes; offset += PAGE) at[offset] = 1;
}

int main(int argc, char **argv) {
    (void)argc;
    volatile char *at = area(8 * HUGE);
    void *start = (void *)at;
    if (!strcmp(argv[1], "partial")) {
        // Four huge pages where the mode permits; one page of the first is dropped, the second is dropped whole.
        madvise(start, 4 * HUGE, MADV_HUGEPAGE);
        fill(at, 4 * HUGE);
        madvise((void *)(at + 7 * PAGE), PAGE, MADV_DONTNEED);
        madvise((void *)(at + HUGE), HUGE, MADV_DONTNEED);
    } else if (!strcmp(argv[1], "collapse")) {
        fill(at, HUGE);
        fill(at + HUGE, 3 * PAGE);
        madvise(start, 2 * HUGE, MADV_COLLAPSE);
    } else if (!strcmp(argv[1], "free")) {
        // 100 pages are marked, 40 are written and marked again.
        fill(at, 100 * PAGE);
        madvise(start, 100 * PAGE, MADV_FREE);
        fill(at, 40 * PAGE);
        madvise(start, 40 * PAGE, MADV_FREE);
    } else if (!strcmp(argv[1], "move")) {
        fill(at, 10 * PAGE);
        fill(at + HUGE, 600 * PAGE);
        mremap(start, 10 * PAGE, 10 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + 6 * HUGE);
        mremap((void *)(at + HUGE), 600 * PAGE, 600 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + 4 * HUGE);
    } else if (!strcmp(argv[1], "fork")) {
        // The child only ends; its parent writes 30 of 50 pages before that, and 20 after it.
        int pipes[2];
        char end;
        if (pipe(pipes)) return 1;
        fill(at, 50 * PAGE);
        if (!fork()) {
            close(pipes[1]);
            _exit(read(pipes[0], &end, 1) != 0);
        }
        fill(at, 30 * PAGE);
        close(pipes[1]);
        wait(0);
        fill(at + 30 * PAGE, 20 * PAGE);
    } else if (!strcmp(argv[1], "unmap")) {
        fill(at, 64 * PAGE);
        munmap((void *)(at + 10 * PAGE), 30 * PAGE);
        mmap((void *)(at + 50 * PAGE), 20 * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        madvise(start, 10 * PAGE, MADV_DONTNEED);
        fill(at, 10 * PAGE);
    }
    return 0;
}
