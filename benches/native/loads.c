// Loads that show differences between allocators. All are in one program, so that they are compiled alike:
//   loads random-mixed CYCLES SLOTS THREADS          a cycle draws a slot, and frees it if it is full or fills it with 16 to 1039
//                                                    bytes; slot and size use the same low bits of one random number
//   loads independent  CYCLES SLOTS THREADS          like random-mixed, with independent slot and size from the upper bits of
//                                                    products
//   loads tiny-hot     CYCLES BYTES BATCH            allocate BATCH blocks, free them in the order of allocation
//   loads larson       CYCLES SLOTS THREADS          replace random blocks; eight times, the threads exchange their blocks
//   loads mstress      CYCLES SLOTS THREADS          random blocks are allocated, kept, or swapped with those of other threads
//   loads idle ...                                   random-mixed without an allocator: the cost of the loop itself
// CYCLES is per thread. Each block's first byte is written. Prints, for the loops alone: pairs of one allocation and one
// free, ns of CPU and of wall-clock time per pair, ns of system time per pair, minor faults, and the process's peak RSS in KiB.
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum { HANDOVERS = 8, SHARED_SLOTS = 1024, CELL_BYTES = 1040 };

struct job;
typedef long load(struct job *);
struct job { pthread_t thread; uint64_t seed; long cycles, slots, extra, pairs; int index; double cpu_ns, wall_ns; load *load; };

static int threads = 1;
static pthread_barrier_t ready;
static char ***handed;
static _Atomic(char *) shared[SHARED_SLOTS];

static double now_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static uint32_t draw32(struct job *job) {
    uint32_t x = job->seed;
    x ^= x << 13; x ^= x >> 17; x ^= x << 5;
    return job->seed = x;
}

// Steele and Vigna's splittable random generator: every output bit depends on all bits of the state.
static uint64_t draw64(struct job *job) {
    uint64_t z = job->seed += 0x9E3779B97F4A7C15;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9;
    z = (z ^ z >> 27) * 0x94D049BB133111EB;
    return z ^ z >> 31;
}

static char *make(size_t bytes) {
    char *block = malloc(bytes);
    if (!block) abort();
    *block = 1;
    return block;
}

static char **slots_of(struct job *job) {
    char **slot = calloc(job->slots, sizeof *slot);
    if (!slot) abort();
    return slot;
}

static long random_mixed(struct job *job) {
    char **slot = slots_of(job);
    for (long i = 0; i < job->cycles; i++) {
        uint32_t x = draw32(job);
        char **at = &slot[x % job->slots];
        if (*at) free(*at), *at = 0;
        else *at = make(16 + (x & 1023));
    }
    return job->cycles / 2;
}

static long independent(struct job *job) {
    char **slot = slots_of(job);
    for (long i = 0; i < job->cycles; i++) {
        uint64_t x = draw64(job);
        char **at = &slot[(x >> 32) * job->slots >> 32];
        if (*at) free(*at), *at = 0;
        else *at = make(16 + (x & 1023));
    }
    return job->cycles / 2;
}

static long idle(struct job *job) {
    char **slot = slots_of(job);
    char *cells = malloc(job->slots * (size_t)CELL_BYTES);
    if (!cells) abort();
    memset(cells, 1, job->slots * (size_t)CELL_BYTES);
    for (long i = 0; i < job->cycles; i++) {
        uint32_t x = draw32(job);
        char **at = &slot[x % job->slots];
        if (*at) *at = 0;
        else *at = cells + x % job->slots * CELL_BYTES, **at = x & 1;
    }
    return job->cycles / 2;
}

static long tiny_hot(struct job *job) {
    char **batch = slots_of(&(struct job){ .slots = job->extra });
    for (long i = 0; i < job->cycles; i += job->extra) {
        for (long at = 0; at < job->extra; at++) batch[at] = make(job->slots);
        for (long at = 0; at < job->extra; at++) free(batch[at]);
    }
    return job->cycles;
}

static long larson(struct job *job) {
    handed[job->index] = slots_of(job);
    for (int turn = 0; turn < HANDOVERS; turn++) {
        pthread_barrier_wait(&ready);
        char **slot = handed[(job->index + turn) % threads];
        for (long i = 0; i < job->cycles / HANDOVERS; i++) {
            uint64_t x = draw64(job);
            char **at = &slot[(x >> 32) * job->slots >> 32];
            free(*at);
            *at = make(16 + (x & 1023));
        }
    }
    return job->cycles;
}

static long mstress(struct job *job) {
    char **slot = slots_of(job);
    for (long i = 0; i < job->cycles; i++) {
        uint64_t x = draw64(job);
        char **at = &slot[(x >> 32) * job->slots >> 32];
        size_t bytes = x % 100 == 0 ? 1 + (x >> 8 & 65535) : 1 + (x >> 8 & 511);
        if (x >> 24 & 3) free(*at), *at = make(bytes);
        else *at = atomic_exchange(&shared[(x >> 26) % SHARED_SLOTS], *at);
    }
    return job->cycles * 3 / 4;
}

// Not ru_maxrss, which starts with the value of the parent process.
static long rss_kib_peak(void) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status))
        if (sscanf(line, "VmHWM: %ld", &kib) == 1) break;
    return kib;
}

static void *run(void *argument) {
    struct job *job = argument;
    pthread_barrier_wait(&ready);
    double cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID), wall_ns = now_ns(CLOCK_MONOTONIC);
    job->pairs = job->load(job);
    job->cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
    job->wall_ns = now_ns(CLOCK_MONOTONIC) - wall_ns;
    return 0;
}

int main(int count, char **word) {
    static const struct { const char *name; load *load; } loads[] = {
        { "random-mixed", random_mixed }, { "independent", independent }, { "idle", idle },
        { "tiny-hot", tiny_hot }, { "larson", larson }, { "mstress", mstress },
    };
    struct job like = { 0 };
    for (size_t i = 0; count == 5 && i < sizeof loads / sizeof *loads; i++)
        if (!strcmp(word[1], loads[i].name)) like.load = loads[i].load;
    if (!like.load) return fprintf(stderr, "usage: loads LOAD CYCLES SLOTS|BYTES THREADS|BATCH\n"), 2;
    like.cycles = atol(word[2]), like.slots = atol(word[3]), like.extra = atol(word[4]);
    if (like.cycles < 1 || like.slots < 1 || like.extra < 1) return fprintf(stderr, "loads: numbers above 0\n"), 2;
    if (like.load != tiny_hot) threads = like.extra;
    struct job *jobs = calloc(threads, sizeof *jobs);
    handed = calloc(threads, sizeof *handed);
    if (!jobs || !handed || pthread_barrier_init(&ready, 0, threads)) return 2;
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < threads; i++) {
        jobs[i] = like;
        jobs[i].seed = 42 + i, jobs[i].index = i;
        if (threads == 1) run(&jobs[i]);
        else if (pthread_create(&jobs[i].thread, 0, run, &jobs[i])) return 2;
    }
    double cpu_ns = 0, wall_ns = 0, pairs = 0;
    for (int i = 0; i < threads; i++) {
        if (threads > 1) pthread_join(jobs[i].thread, 0);
        cpu_ns += jobs[i].cpu_ns, pairs += jobs[i].pairs;
        if (wall_ns < jobs[i].wall_ns) wall_ns = jobs[i].wall_ns;
    }
    getrusage(RUSAGE_SELF, &after);
    long faults = after.ru_minflt - before.ru_minflt;
    double system_ns = (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1e9 + (after.ru_stime.tv_usec - before.ru_stime.tv_usec) * 1e3;
    printf("%.0f %.4f %.4f %.4f %ld %ld\n", pairs, cpu_ns / pairs, wall_ns / pairs, system_ns / pairs, faults, rss_kib_peak());
    return 0;
}
