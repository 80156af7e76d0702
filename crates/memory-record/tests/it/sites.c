// Makes mappings from known call stacks. Each function keeps its return address in a list of the program's own; before a
// memory call, the list is printed: the number of pages, then return addresses, innermost first, as in the program's file.
// Programs whose addresses are not those of the file are position-independent; others are compiled with -DSTART=0.
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef START
extern const char __executable_start;
#define START &__executable_start
#endif
static __thread void *callers[128];
static __thread int depth;

#define ENTER callers[depth++] = __builtin_return_address(0)
#define LEAVE depth--
#define FUNCTION __attribute__((noinline, noclone, noipa))

static FUNCTION void print(long pages) {
    char line[4096];
    int at = snprintf(line, sizeof line, "%ld", pages);
    for (int frame = depth - 1; frame >= 0; frame--)
        at += snprintf(line + at, sizeof line - at, " %lx", (long)((char *)callers[frame] - (const char *)(START)));
    line[at++] = '\n';
    if (write(1, line, at) != at) abort();
}

static FUNCTION void *by_mmap(long pages) {
    ENTER;
    print(pages);
    void *got = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (got == MAP_FAILED) abort();
    *(volatile char *)got = 1;
    LEAVE;
    return got;
}

// malloc of this many pages needs one more for its header.
static FUNCTION void by_malloc(long pages) {
    ENTER;
    print(pages);
    volatile char *got = malloc((pages - 1) * 4096);
    *got = 1;
    LEAVE;
}

static FUNCTION void by_sbrk(long pages) {
    ENTER;
    print(pages);
    if (sbrk(pages * 4096) == (void *)-1) abort();
    LEAVE;
}

static FUNCTION void by_mremap(long pages, void *old, long old_pages) {
    ENTER;
    print(pages);
    if (mremap(old, old_pages * 4096, pages * 4096, MREMAP_MAYMOVE) == MAP_FAILED) abort();
    LEAVE;
}

static FUNCTION void recurse(int levels, long pages, size_t frame_bytes) {
    ENTER;
    volatile char *frame = frame_bytes ? alloca(frame_bytes) : NULL;
    if (frame) frame[0] = 1;
    if (levels > 0) recurse(levels - 1, pages, frame_bytes);
    else by_mmap(pages);
    LEAVE;
    __asm__ volatile("" ::: "memory");
}

// A stack that is realigned, with values in all registers that functions preserve.
static FUNCTION void aligned(long pages, long a, long b, long c, long d) {
    ENTER;
    _Alignas(64) volatile char buffer[64];
    buffer[0] = (char)pages;
    volatile char *more = alloca(pages);
    more[0] = 1;
    long kept[5] = {a * b, b * c, c * d, d * a, a + d};
    by_mmap(pages);
    for (int i = 0; i < 5; i++) buffer[i] = (char)(kept[i] + a + b + c + d);
    LEAVE;
}

static void handler(int signal) {
    (void)signal;
    callers[depth++] = 0; // a frame of the kernel's, then the interrupted function
    by_mmap(1006);
    depth--;
}

static void *thread(void *unused) {
    ENTER;
    by_mmap(1007);
    LEAVE;
    return unused;
}

int main(void) {
    ENTER;
    void *first = by_mmap(1001);
    by_malloc(1002);
    by_sbrk(1003);
    recurse(30, 1004, 0);
    aligned(1005, 3, 5, 7, 9);
    signal(SIGUSR1, handler);
    raise(SIGUSR1);
    pthread_t other;
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, NULL);
    by_mremap(1008, first, 1001);
    recurse(30, 1009, 1024);
    LEAVE;
    return 0;
}
