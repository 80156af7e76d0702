/* A service of several processes.
 *
 * family WAY MIB
 *
 * WAY "grows": it writes so much memory in small pages, and 16 MiB of shared memory. A first child writes a quarter of it
 * again, and it prints "ready". After a line on its standard input, a second child writes the eighth that follows, and it
 * prints "done" and six zeros. All wait for the end of its input.
 *
 * WAY "parts": it writes so much memory in huge pages where it gets them. A child drops the last quarter of each 2 MiB, and it
 * prints "ready". The rest is as before, without a second child.
 *
 * WAY "ends": it prints "ready" and waits for a line. Then it writes so much memory; a child writes half of it again and
 * ends; it writes three quarters as much elsewhere, and prints "done". */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define HUGE_BYTES (2ul << 20)

static int alive[2];

static char *mapped(size_t bytes, int sharing) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, sharing | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) _exit(2);
    return memory;
}

/* Memory without huge pages. */
static char *mapped_small(size_t bytes) {
    char *memory = mapped(bytes, MAP_PRIVATE);
    if (madvise(memory, bytes, MADV_NOHUGEPAGE)) _exit(2);
    return memory;
}

static void write_pages(char *memory, size_t bytes) {
    memset(memory, 2, bytes);
}

static void drop_parts(char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += HUGE_BYTES)
        if (madvise(memory + at + HUGE_BYTES / 4 * 3, HUGE_BYTES / 4, MADV_DONTNEED)) _exit(2);
}

/* Forks a child that does something with memory, and returns when that is done. */
static void child_that(void (*act)(char *, size_t), char *memory, size_t bytes) {
    int done[2];
    char byte = 0;
    if (pipe(done)) _exit(2);
    if (fork() == 0) {
        close(alive[1]);
        act(memory, bytes);
        if (write(done[1], &byte, 1) != 1) _exit(2);
        while (read(alive[0], &byte, 1) > 0) {}
        _exit(0);
    }
    if (read(done[0], &byte, 1) != 1) _exit(2);
    close(done[0]);
    close(done[1]);
}

static void end_children(void) {
    close(alive[1]);
    while (wait(NULL) > 0) {}
}

/* Prints "ready", and returns when a line was read. */
static void wait_for_line(void) {
    char line[16];
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) _exit(0);
}

static void say_done(void) {
    printf("done 0 0 0 0 0 0\n");
    fflush(stdout);
    while (getchar() != EOF) {}
}

static void grow(size_t bytes) {
    char *memory = mapped_small(bytes), *shared = mapped(16 << 20, MAP_SHARED);
    memset(memory, 1, bytes);
    memset(shared, 1, 16 << 20);
    child_that(write_pages, memory, bytes / 4);
    wait_for_line();
    child_that(write_pages, memory + bytes / 4, bytes / 8);
    say_done();
    end_children();
}

static void share_parts(size_t bytes) {
    uintptr_t start = (uintptr_t)mapped(bytes + HUGE_BYTES, MAP_PRIVATE);
    char *memory = (char *)((start + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES);
    madvise(memory, bytes, MADV_HUGEPAGE);
    memset(memory, 1, bytes);
    child_that(drop_parts, memory, bytes);
    wait_for_line();
    say_done();
    end_children();
}

static void let_child_end(size_t bytes) {
    wait_for_line();
    char *memory = mapped_small(bytes);
    memset(memory, 1, bytes);
    child_that(write_pages, memory, bytes / 2);
    end_children();
    memset(mapped_small(bytes / 4 * 3), 1, bytes / 4 * 3);
    say_done();
}

int main(int count, char **words) {
    if (count < 3 || pipe(alive)) return 2;
    size_t bytes = strtoul(words[2], NULL, 10) << 20;
    if (!strcmp(words[1], "grows")) grow(bytes);
    else if (!strcmp(words[1], "parts")) share_parts(bytes);
    else if (!strcmp(words[1], "ends")) let_child_end(bytes);
    else return 2;
    return 0;
}
