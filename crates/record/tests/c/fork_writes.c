/* Writes random pages of its blocks while children share them, and counts the pages that the kernel must copy because
 * a running child still shares them. Prints the number of copies, of faults that only restore write permission, and of
 * faults that the kernel counted. Between the steps it pauses and calls no allocator. Children do nothing. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BLOCKS = 24, PAGES_MAX = 9, PAGES = BLOCKS * PAGES_MAX, CHILDREN = 4, STEPS = 40 };

static uint64_t state;
static unsigned below(unsigned end) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % end;
}

static char *page_at[PAGES];
static int pages;
static int memory[PAGES];           /* The physical memory of a page: a copy gets a new number. */
static int is_protected[PAGES];     /* There was a fork since the last write. */
static pid_t pid_of[CHILDREN];      /* 0 for no child. */
static int memory_of[CHILDREN][PAGES];
static int next_memory;
static long copies, reuses, faults;

static long minor_faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static int is_shared(int page) {
    for (int child = 0; child < CHILDREN; child++)
        if (pid_of[child] && memory_of[child][page] == memory[page]) return 1;
    return 0;
}

static void write_pages(int from, int count) {
    for (int page = from; page < from + count; page++) {
        if (!is_protected[page]) continue;
        if (is_shared(page)) {
            copies++;
            memory[page] = next_memory++;
        } else {
            reuses++;
        }
        is_protected[page] = 0;
    }
    minor_faults(); /* Takes this function's own first faults after a fork. */
    long before = minor_faults();
    for (int page = from; page < from + count; page++) ((volatile char *)page_at[page])[page % PAGE] = 1;
    faults += minor_faults() - before;
}

static void fork_child(int child) {
    memcpy(memory_of[child], memory, sizeof memory);
    for (int page = 0; page < pages; page++) is_protected[page] = 1;
    pid_t pid = fork();
    if (pid == 0)
        for (;;) pause();
    pid_of[child] = pid;
}

static void end_child(int child) {
    kill(pid_of[child], SIGKILL);
    waitpid(pid_of[child], 0, 0);
    pid_of[child] = 0;
}

int main(int argc, char **argv) {
    state = argc > 1 ? strtoull(argv[1], 0, 10) : 1;
    for (int block = 0; block < BLOCKS; block++) {
        int count = 1 + (int)below(PAGES_MAX);
        char *at = aligned_alloc(PAGE, (size_t)count * PAGE);
        for (int page = 0; page < count; page++) page_at[pages++] = at + page * PAGE;
    }
    next_memory = 1;
    for (int page = 0; page < pages; page++) memory[page] = next_memory++;
    write_pages(0, pages);
    for (int page = 0; page < pages; page++) page_at[page][0] = 1;
    faults = 0;
    for (int step = 0; step < STEPS; step++) {
        usleep(20000);
        int child = (int)below(CHILDREN);
        switch (below(4)) {
        case 0:
        case 1: {
            int from = (int)below(pages);
            write_pages(from, 1 + (int)below(pages - from));
            break;
        }
        case 2:
            if (!pid_of[child]) fork_child(child);
            break;
        case 3:
            if (pid_of[child]) end_child(child);
            break;
        }
    }
    for (int child = 0; child < CHILDREN; child++)
        if (pid_of[child]) end_child(child);
    char line[100];
    int length = snprintf(line, sizeof line, "%ld %ld %ld\n", copies, reuses, faults);
    return write(1, line, (size_t)length) == length ? 0 : 1;
}
