/* A service of several processes: a child that was there before a recorder attached, and one that comes later.
 *
 * family MIB
 *
 * It writes so much memory in small pages, and 16 MiB of shared memory. A first child writes a quarter of it again, and it
 * prints "ready". After a line on its standard input, a second child writes the eighth that follows, and it prints "done"
 * and six zeros. All wait for the end of its input. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int alive[2];

/* Forks a child that writes a part of the memory, and returns when that is done. */
static void child_that_writes(char *memory, size_t bytes) {
    int done[2];
    char byte = 0;
    if (pipe(done)) _exit(2);
    if (fork() == 0) {
        close(alive[1]);
        memset(memory, 2, bytes);
        if (write(done[1], &byte, 1) != 1) _exit(2);
        while (read(alive[0], &byte, 1) > 0) {}
        _exit(0);
    }
    if (read(done[0], &byte, 1) != 1) _exit(2);
    close(done[0]);
    close(done[1]);
}

int main(int count, char **words) {
    size_t bytes = (count > 1 ? strtoul(words[1], NULL, 10) : 16) << 20, shared_bytes = 16 << 20;
    char line[16];
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *shared = mmap(NULL, shared_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || shared == MAP_FAILED || madvise(memory, bytes, MADV_NOHUGEPAGE)) return 1;
    memset(memory, 1, bytes);
    memset(shared, 1, shared_bytes);
    if (pipe(alive)) return 1;
    child_that_writes(memory, bytes / 4);
    printf("ready\n");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin)) return 0;
    child_that_writes(memory + bytes / 4, bytes / 8);
    printf("done 0 0 0 0 0 0\n");
    fflush(stdout);
    while (getchar() != EOF) {}
    close(alive[1]);
    while (wait(NULL) > 0) {}
    return 0;
}
