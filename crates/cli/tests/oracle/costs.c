/* Times three page operations independently of hksim: medians of 31 rounds over 2048 pages, in ns per page. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#define PAGES 2048
#define ROUNDS 31
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}
static int order(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
int main(void) {
    double write[ROUNDS], drop[ROUNDS], read[ROUNDS];
    volatile char sum = 0;
    for (int round = 0; round < ROUNDS; round++) {
        volatile char *map = mmap(0, PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise((void *)map, PAGES * 4096, MADV_NOHUGEPAGE);
        double start = now();
        for (long i = 0; i < PAGES; i++) map[i * 4096] = 1;
        double written = now();
        madvise((void *)map, PAGES * 4096, MADV_DONTNEED);
        double dropped = now();
        for (long i = 0; i < PAGES; i++) sum += map[i * 4096];
        double end = now();
        write[round] = written - start;
        drop[round] = dropped - written;
        read[round] = end - dropped;
        munmap((void *)map, PAGES * 4096);
    }
    double *all[] = {write, drop, read};
    for (int i = 0; i < 3; i++) {
        qsort(all[i], ROUNDS, sizeof(double), order);
        printf("%f ", all[i][ROUNDS / 2] / PAGES);
    }
    return sum;
}
