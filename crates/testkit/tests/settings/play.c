// Runs one load on whichever malloc is preloaded, and prints what it observes, one `name value` per line. Knows no
// setting: what a setting does is the difference between two runs.
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

enum { BLOCKS = 4096, BLOCK_BYTES = 32 << 10, WAIT_MS = 3000, CACHED = 200, THREADS_MAX = 1024 };

static char *blocks[BLOCKS];

// The number after a name in a file in /proc/self, or -1. Allocates nothing: a block on top of the heap would keep
// glibc from trimming it.
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

// Fills 128 MiB and frees all,. Returns the RSS between the two.
static long fill_and_free(void) {
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    fill(BLOCKS, BLOCK_BYTES);
    getrusage(RUSAGE_SELF, &after);
    printf("faults %ld\n", after.ru_minflt - before.ru_minflt);
    printf("huge_kib %ld\n", line_of("/proc/self/smaps_rollup", "AnonHugePages:"));
    long full_kib = rss_kib();
    clear(BLOCKS);
    return full_kib;
}

// Waits, making the calls at which allocators look at their clocks, until half of the memory is back.
static void wait_for_purge(long full_kib) {
    long start_ms = now_ms(), end_ms = -1;
    while (now_ms() - start_ms < WAIT_MS) {
        usleep(1000);
        free(malloc(BLOCK_BYTES));
        free(malloc(2 << 20));
        if (end_ms < 0 && rss_kib() < full_kib / 2) end_ms = now_ms();
    }
    printf("purge_ms %ld\n", end_ms < 0 ? -1 : end_ms - start_ms);
    printf("threads %ld\n", line_of("/proc/self/status", "Threads:"));
}

// Free blocks that the thread keeps for itself, from the statistics of the allocator in use.
static long kept_blocks(size_t bytes) {
    int (*mallctl)(const char *, void *, size_t *, void *, size_t) = dlsym(RTLD_DEFAULT, "mallctl");
    int (*property)(const char *, size_t *) = dlsym(RTLD_DEFAULT, "MallocExtension_GetNumericProperty");
    if (mallctl) {
        unsigned bins;
        size_t regions, live = 0, length = sizeof bins;
        unsigned long epoch = 1;
        mallctl("epoch", NULL, NULL, &epoch, sizeof epoch);
        mallctl("arenas.nbins", &bins, &length, NULL, 0);
        for (unsigned bin = 0; bin < bins; bin++) {
            char name[64];
            size_t size;
            snprintf(name, sizeof name, "arenas.bin.%u.size", bin);
            length = sizeof size;
            mallctl(name, &size, &length, NULL, 0);
            if (size != bytes) continue;
            snprintf(name, sizeof name, "stats.arenas.4096.bins.%u.curregs", bin);
            length = sizeof regions;
            mallctl(name, &regions, &length, NULL, 0);
            live = regions;
        }
        return live;
    }
    if (property) {
        size_t kept = 0;
        property("tcmalloc.current_total_thread_cache_bytes", &kept);
        return kept / bytes;
    }
    // What glibc's thread caches keep counts as in use.
    struct mallinfo2 info = mallinfo2();
    return info.uordblks / ((bytes + 8 + 15) / 16 * 16);
}

// Frees blocks of one size, and prints how many more the thread keeps than before.
static void cache(size_t bytes, size_t count) {
    long before = kept_blocks(bytes);
    fill(count, bytes);
    clear(count);
    printf("kept %ld\n", kept_blocks(bytes) - before);
}

static pthread_barrier_t all;

static void *of_thread(void *unused) {
    void *block = malloc(1000);
    pthread_barrier_wait(&all);
    free(block);
    return unused;
}

// Arenas of glibc or jemalloc that many threads use at once.
static void threads(int count) {
    pthread_t ids[THREADS_MAX];
    unsigned arenas = 0;
    size_t length = sizeof arenas, size = 0;
    char *text = NULL;
    pthread_barrier_init(&all, NULL, count + 1);
    for (int at = 0; at < count; at++)
        if (pthread_create(&ids[at], NULL, of_thread, NULL)) exit(3);
    int (*mallctl)(const char *, void *, size_t *, void *, size_t) = dlsym(RTLD_DEFAULT, "mallctl");
    if (mallctl) {
        unsigned known = 0, users = 0;
        mallctl("arenas.narenas", &known, &length, NULL, 0);
        for (unsigned arena = 0; arena < known; arena++) {
            char name[64];
            snprintf(name, sizeof name, "stats.arenas.%u.nthreads", arena);
            length = sizeof users;
            if (!mallctl(name, &users, &length, NULL, 0) && users) arenas++;
        }
    } else {
        FILE *out = open_memstream(&text, &size);
        malloc_info(0, out);
        fclose(out);
        for (char *at = text; (at = strstr(at, "<heap nr=")); at++) arenas++;
    }
    printf("arenas %u\n", arenas);
    pthread_barrier_wait(&all);
    for (int at = 0; at < count; at++) pthread_join(ids[at], NULL);
}

int main(int count, char **words) {
    static char output[1 << 12];
    const char *load = count > 1 ? words[1] : "";
    setvbuf(stdout, output, _IOFBF, sizeof output);
    if (!strcmp(load, "blocks")) fill_and_free();
    else if (!strcmp(load, "wait")) wait_for_purge(fill_and_free());
    else if (!strcmp(load, "large")) fill(1, 40 << 20), clear(1);
    else if (!strcmp(load, "cache64")) cache(64, CACHED);
    else if (!strcmp(load, "cache128")) cache(128, CACHED);
    else if (!strcmp(load, "cache1024")) cache(1024, BLOCKS);
    else if (!strcmp(load, "threads")) threads(8 * (int)sysconf(_SC_NPROCESSORS_ONLN) + 24);
    else return 2;
    printf("rss_kib %ld\n", rss_kib());
    printf("thp_enabled %ld\n", line_of("/proc/self/status", "THP_enabled:"));
    return 0;
}
