// Memory of 16 ranges of 2 MiB, in which range N has 32 N + 1 pages, then advice for huge pages. Prints Rss and
// AnonHugePages of this memory in kB; with "wait" again after three more full scans of khugepaged, with "idle" again after
// three seconds.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RANGES = 16, PAGE = 4096, RANGE = 2 << 20 };

static long full_scans(void) {
    long count = -1;
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/khugepaged/full_scans", "r");
    if (file && fscanf(file, "%ld", &count) != 1) count = -1;
    if (file) fclose(file);
    return count;
}

static void print_memory(unsigned long start) {
    char line[256];
    unsigned long from, to;
    int is_inside = 0;
    long rss = 0, huge = 0, figure;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) is_inside = from >= start && to <= start + RANGES * (long)RANGE;
        else if (is_inside && sscanf(line, "Rss: %ld", &figure) == 1) rss += figure;
        else if (is_inside && sscanf(line, "AnonHugePages: %ld", &figure) == 1) huge += figure;
    }
    printf("%ld %ld\n", rss, huge);
    fflush(stdout);
    if (file) fclose(file);
}

int main(int count, char **words) {
    size_t bytes = RANGES * (size_t)RANGE;
    char *map = mmap(0, bytes + RANGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED) return 1;
    char *start = (char *)(((unsigned long)map + RANGE - 1) & ~(RANGE - 1ul));
    for (int range = 0; range < RANGES; range++)
        for (int page = 0; page <= 32 * range; page++) start[range * (size_t)RANGE + page * (size_t)PAGE] = 1;
    // Zero pages count as absent, and old pages alone are not collapsed.
    for (int page = 100; page < 500; page++) ((volatile char *)start)[page * (size_t)PAGE];
    if (madvise(start, bytes, MADV_HUGEPAGE) != 0) return 1;
    madvise(start + 14 * (size_t)RANGE, RANGE, MADV_COLD);
    print_memory((unsigned long)start);
    if (count > 1 && strcmp(words[1], "idle") == 0) {
        sleep(3);
        print_memory((unsigned long)start);
    }
    if (count > 1 && strcmp(words[1], "wait") == 0) {
        long end = full_scans() + 3;
        for (int tries = 0; full_scans() < end; tries++) {
            if (tries > 20000) return 2;
            usleep(1000);
        }
        print_memory((unsigned long)start);
    }
    return 0;
}
