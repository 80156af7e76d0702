// Threads that write memory at the same time: memory_limit_validations.rs knows what is right.
// Arguments: threads; pages that each of them writes; pages of the kernel that are held in pipes.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PAGE 4096ul
#define PIPE_PAGES 256ul

static size_t pages;

static void *fill(void *unused) {
    volatile char *at = mmap(0, (pages + 1) * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) _exit(9);
    for (size_t page = 0; page < pages; page++) {
        at[page * PAGE] = 1;
        // Another thread's turn, on one processor, too.
        if (page % 16 == 0) usleep(50);
    }
    return unused;
}

static void hold(size_t held) {
    static char bytes[PAGE];
    for (size_t page = 0; page < held; page += PIPE_PAGES) {
        int ends[2];
        if (pipe(ends) || fcntl(ends[1], F_SETPIPE_SZ, PIPE_PAGES * PAGE) < 0) _exit(9);
        for (size_t filled = 0; filled < PIPE_PAGES; filled++)
            if (write(ends[1], bytes, PAGE) != (ssize_t)PAGE) _exit(9);
    }
}

int main(int argc, char **argv) {
    unsigned long count[3] = {0};
    for (int index = 0; index < 3 && index + 1 < argc; index++) count[index] = strtoul(argv[index + 1], 0, 10);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    pages = count[1];
    hold(count[2]);
    pthread_t threads[64];
    for (unsigned long thread = 0; thread < count[0] && thread < 64; thread++)
        if (pthread_create(&threads[thread], 0, fill, 0)) _exit(9);
    for (unsigned long thread = 0; thread < count[0] && thread < 64; thread++) pthread_join(threads[thread], 0);
    return 0;
}
