// Sets whether it can get huge pages (PR_SET_THP_DISABLE), and executes a program: `inherits VALUE FLAGS exec|fork|vfork
// PROGRAM ARGUMENTS...`. Without arguments: writes to every page of 32 MiB that it advised MADV_HUGEPAGE.

#define _GNU_SOURCE
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HUGE = 2 << 20, BYTES = 16 * HUGE };

static int write_all(void) {
    char *mapped = mmap(0, BYTES + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return 1;
    char *aligned = (char *)(((uintptr_t)mapped + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    if (madvise(aligned, BYTES, MADV_HUGEPAGE)) return 2;
    for (long at = 0; at < BYTES; at += 4096) *(volatile char *)(aligned + at) = 1;
    return 0;
}

int main(int count, char **words) {
    if (count < 5) return write_all();
    if (prctl(PR_SET_THP_DISABLE, atoi(words[1]), atoi(words[2]), 0, 0)) return 3;
    pid_t child = 0;
    if (!strcmp(words[3], "fork")) child = fork();
    if (!strcmp(words[3], "vfork")) child = vfork();
    if (child == 0) {
        execv(words[4], words + 4);
        _exit(4);
    }
    int status;
    return waitpid(child, &status, 0) == child ? WEXITSTATUS(status) : 5;
}
