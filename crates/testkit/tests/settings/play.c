// Runs one load on whichever malloc is in use, and prints what it observes, one `figure value` per line. It knows no
// setting: what a setting does is the difference between two runs. The calls of `access` mark the load in a list of the
// system calls.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { TOTAL = 128 << 20, SMALL = 32 << 10, LARGE = 4 << 20, BLOCKS_MAX = TOTAL / SMALL, ALL = BLOCKS_MAX };
enum { WAIT_MS = 1500, CALLS_PER_MS = 100, CACHED = 200, ROUNDS = 50, THREADS_MAX = 1024, NEVER_MS = 1000000 };

static char *blocks[BLOCKS_MAX];

// The compiler would leave out a block that is freed at once.
static void *(*volatile take)(size_t) = malloc;

// jemalloc's and gperftools' interfaces to their statistics, where they are in use.
static int (*mallctl)(const char *, void *, size_t *, void *, size_t);
static int (*property)(const char *, size_t *);

// The number after a name in a file of /proc/self, or -1. Allocates nothing: a block on top of the heap would keep glibc
// from trimming it.
static long line_of(const char *file, const char *name) {
    char text[8192];
    int in = open(file, O_RDONLY);
    ssize_t length = in < 0 ? 0 : read(in, text, sizeof text - 1);
    if (in >= 0) close(in);
    text[length < 0 ? 0 : length] = 0;
    char *found = strstr(text, name);
    return found ? atol(found + strlen(name)) : -1;
}

static long rss_kib(void) { return line_of("/proc/self/status", "VmRSS:"); }

static long now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void fill(size_t count, size_t bytes) {
    for (size_t at = 0; at < count; at++) {
        blocks[at] = malloc(bytes);
        if (!blocks[at]) exit(3);
        memset(blocks[at], 1, bytes);
    }
}

static void clear(size_t count) {
    for (size_t at = 0; at < count; at++) free(blocks[at]);
}

// Fills 128 MiB with blocks, and frees `run` of them, leaves as many, and so on. Returns the RSS between the two.
static long fill_and_free(size_t bytes, size_t run) {
    struct rusage before, after;
    size_t count = TOTAL / bytes;
    getrusage(RUSAGE_SELF, &before);
    fill(count, bytes);
    getrusage(RUSAGE_SELF, &after);
    printf("faults %ld\n", after.ru_minflt - before.ru_minflt);
    printf("huge_kib %ld\n", line_of("/proc/self/smaps_rollup", "AnonHugePages:"));
    long full_kib = rss_kib();
    for (size_t at = 0; at < count; at++)
        if (at % (2 * run) < run) free(blocks[at]);
    return full_kib;
}

// Waits, making the calls at which allocators look at their clocks, until three quarters of the memory are back.
static void wait_for_purge(long full_kib) {
    long start_ms = now_ms(), purge_ms = NEVER_MS;
    while (now_ms() - start_ms < WAIT_MS) {
        usleep(1000);
        for (int call = 0; call < CALLS_PER_MS; call++) free(take(2 << 20));
        if (purge_ms == NEVER_MS && rss_kib() < full_kib / 4) purge_ms = now_ms() - start_ms;
    }
    printf("purge_ms %ld\n", purge_ms);
    printf("threads %ld\n", line_of("/proc/self/status", "Threads:"));
}

// A symbol that is missing costs a block, so only the loads that need them look for them.
static void find_statistics(void) {
    mallctl = (int (*)(const char *, void *, size_t *, void *, size_t))dlsym(RTLD_DEFAULT, "mallctl");
    property = (int (*)(const char *, size_t *))dlsym(RTLD_DEFAULT, "MallocExtension_GetNumericProperty");
}

// Bytes in use as the allocator counts them where it counts free blocks that a thread keeps for itself.
static long counted_bytes(size_t bytes) {
    if (mallctl) {
        unsigned bins;
        size_t regions = 0, size, length = sizeof bins;
        unsigned long epoch = 1;
        char name[64];
        mallctl("epoch", NULL, NULL, &epoch, sizeof epoch);
        mallctl("arenas.nbins", &bins, &length, NULL, 0);
        for (unsigned bin = 0; bin < bins; bin++) {
            length = sizeof size;
            snprintf(name, sizeof name, "arenas.bin.%u.size", bin);
            mallctl(name, &size, &length, NULL, 0);
            // 4096 stands for all arenas.
            snprintf(name, sizeof name, "stats.arenas.4096.bins.%u.curregs", bin);
            if (size == bytes) mallctl(name, &regions, &length, NULL, 0);
        }
        return regions * bytes;
    }
    if (property) {
        size_t kept = 0;
        property("tcmalloc.current_total_thread_cache_bytes", &kept);
        return kept;
    }
    return mallinfo2().uordblks;
}

// Frees blocks of one size, and prints how many the thread keeps.
static void cache(size_t bytes, size_t count, int rounds) {
    find_statistics();
    // glibc's chunks are 8 bytes larger than their blocks, in multiples of 16.
    size_t spent = mallctl || property ? bytes : (bytes + 8 + 15) / 16 * 16;
    long before = counted_bytes(bytes);
    while (rounds--) {
        fill(count, bytes);
        clear(count);
    }
    printf("kept %ld\n", (counted_bytes(bytes) - before) / (long)spent);
}

static pthread_barrier_t all;

static void *of_thread(void *unused) {
    void *block = take(1000);
    pthread_barrier_wait(&all); // All have a block; the arenas are counted.
    pthread_barrier_wait(&all);
    free(block);
    return unused;
}

// Arenas of glibc or jemalloc in use.
static unsigned arenas(void) {
    unsigned count = 0, known = 0, users;
    size_t length = sizeof known, size = 0;
    char *text = NULL, name[64];
    if (mallctl) {
        mallctl("arenas.narenas", &known, &length, NULL, 0);
        for (unsigned arena = 0; arena < known; arena++) {
            snprintf(name, sizeof name, "stats.arenas.%u.nthreads", arena);
            count += !mallctl(name, &users, &length, NULL, 0) && users;
        }
        return count;
    }
    FILE *out = open_memstream(&text, &size);
    malloc_info(0, out);
    fclose(out);
    for (char *at = text; (at = strstr(at, "<heap nr=")); at++) count++;
    return count;
}

static void many_threads(int count) {
    pthread_t ids[THREADS_MAX];
    find_statistics();
    pthread_barrier_init(&all, NULL, count + 1);
    for (int at = 0; at < count; at++)
        if (pthread_create(&ids[at], NULL, of_thread, NULL)) exit(3);
    pthread_barrier_wait(&all);
    printf("arenas %u\n", arenas());
    pthread_barrier_wait(&all);
    for (int at = 0; at < count; at++) pthread_join(ids[at], NULL);
}

static void run(const char *load) {
    if (!strcmp(load, "blocks")) fill_and_free(SMALL, ALL);
    else if (!strcmp(load, "wait")) wait_for_purge(fill_and_free(SMALL, ALL));
    else if (!strcmp(load, "wait-large")) wait_for_purge(fill_and_free(LARGE, ALL));
    else if (!strcmp(load, "holes")) wait_for_purge(fill_and_free(SMALL, (512 << 10) / SMALL));
    else if (!strcmp(load, "large")) fill(1, 40 << 20), clear(1);
    else if (!strcmp(load, "cache768")) cache(768, CACHED, 1);
    else if (!strcmp(load, "cache128")) cache(128, CACHED, 1);
    else if (!strcmp(load, "cache1024")) cache(1024, BLOCKS_MAX, ROUNDS);
    else if (!strcmp(load, "cache4096")) cache(4096, CACHED, 1);
    else if (!strcmp(load, "threads")) many_threads(8 * (int)sysconf(_SC_NPROCESSORS_ONLN) + 24);
    else exit(2);
}

int main(int count, char **words) {
    static char output[1 << 12];
    if (count != 2) return 2;
    setvbuf(stdout, output, _IOFBF, sizeof output);
    access("load begins", F_OK);
    run(words[1]);
    access("load ends", F_OK);
    printf("rss_kib %ld\n", rss_kib());
    printf("thp_enabled %ld\n", line_of("/proc/self/status", "THP_enabled:"));
    return 0;
}
