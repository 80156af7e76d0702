// Writes memory, gives it up, and writes a part of it again: memory_limits.rs knows what is right. Prints the page faults
// of this, and the anonymous memory at the end.
// Arguments: free or dontneed; MiB written, written again, and written elsewhere after it; "stop" to stop first.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>

static char *mapped(size_t bytes) {
    return mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void fill(char *at, size_t bytes) {
    for (size_t offset = 0; offset < bytes; offset += 4096) ((volatile char *)at)[offset] = 1;
}

static long faults(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static long anonymous_bytes(void) {
    char line[256];
    long kilobytes = -1;
    FILE *file = fopen("/proc/self/smaps_rollup", "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "Anonymous: %ld", &kilobytes);
    if (file) fclose(file);
    return kilobytes * 1024;
}

int main(int argc, char **argv) {
    if (argc < 5) return 2;
    int advice = strcmp(argv[1], "free") ? MADV_DONTNEED : MADV_FREE;
    size_t sizes[3];
    for (int part = 0; part < 3; part++) sizes[part] = strtoul(argv[2 + part], 0, 10) << 20;
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    if (argc > 5) raise(SIGSTOP);
    long before = faults();
    char *at = mapped(sizes[0]);
    fill(at, sizes[0]);
    madvise(at, sizes[0], advice);
    fill(at, sizes[1]);
    char *elsewhere = mapped(sizes[2]);
    fill(elsewhere, sizes[2]);
    long after = faults();
    printf("%ld %ld\n", after - before, anonymous_bytes());
}
