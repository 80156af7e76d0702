// Loads for benches/memory_record.py: prints the seconds that the load took. Arguments: the load and its size.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static char *map(size_t bytes) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void *faults(void *count) {
    size_t bytes = (size_t)count * 4096;
    char *start = map(bytes);
    for (size_t at = 0; at < bytes; at += 4096) start[at] = 1;
    munmap(start, bytes);
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    long count = atol(argv[2]);
    pthread_t threads[4];
    // As in a recording, also in the bare run.
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    double begin = now();
    switch (argv[1][0]) {
    case 'f': faults((void *)count); break;
    case 't':
        for (int at = 0; at < 4; at++) pthread_create(&threads[at], 0, faults, (void *)(count / 4));
        for (int at = 0; at < 4; at++) pthread_join(threads[at], 0);
        break;
    case 'c':
        for (long done = 0; done < count; done += 2) munmap(map(65536), 65536);
        break;
    case 'o':
        for (long done = 0; done < count; done++) getppid();
    }
    fprintf(stderr, "seconds %.6f\n", now() - begin);
}
