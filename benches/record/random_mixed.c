// random_mixed in several threads: each cycle draws a slot, and frees it if it is full or fills it.
// Usage: random_mixed CYCLES SLOTS THREADS; with 0 threads it runs in the main thread alone. Prints, for the loops alone:
// events, and nanoseconds of CPU and of wall-clock time per event.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct job { pthread_t thread; uint32_t seed, slots; long cycles; double cpu_ns, wall_ns; };

static double now_ns(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

static pthread_barrier_t ready;

static void *run(void *argument) {
    struct job *job = argument;
    uint32_t x = job->seed;
    char **slot = calloc(job->slots, sizeof *slot);
    if (!slot) abort();
    pthread_barrier_wait(&ready);
    double cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID), wall_ns = now_ns(CLOCK_MONOTONIC);
    for (long i = 0; i < job->cycles; i++) {
        x ^= x << 13; x ^= x >> 17; x ^= x << 5;
        char **at = &slot[x % job->slots];
        if (*at) {
            free(*at);
            *at = 0;
        } else {
            char *block = malloc(16 + (x >> 8) % 1024);
            if (!block) abort();
            *block = 1;
            *at = block;
        }
    }
    job->cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - cpu_ns;
    job->wall_ns = now_ns(CLOCK_MONOTONIC) - wall_ns;
    return 0;
}

int main(int count, char **word) {
    if (count != 4) return fprintf(stderr, "usage: random_mixed CYCLES SLOTS THREADS\n"), 2;
    long cycles = atol(word[1]);
    int others = atoi(word[3]), threads = others ? others : 1;
    struct job *jobs = calloc(threads, sizeof *jobs);
    if (!jobs || cycles < 1 || atol(word[2]) < 1 || others < 0) return 2;
    pthread_barrier_init(&ready, 0, threads);
    for (int i = 0; i < threads; i++) {
        jobs[i].seed = 42 + i, jobs[i].slots = atol(word[2]), jobs[i].cycles = cycles;
        if (others && pthread_create(&jobs[i].thread, 0, run, &jobs[i])) return 2;
        if (!others) run(&jobs[i]);
    }
    double cpu_ns = 0, wall_ns = 0;
    for (int i = 0; i < threads; i++) {
        if (others) pthread_join(jobs[i].thread, 0);
        cpu_ns += jobs[i].cpu_ns;
        if (wall_ns < jobs[i].wall_ns) wall_ns = jobs[i].wall_ns;
    }
    double events = (double)cycles * threads;
    printf("%.0f %.3f %.3f\n", events, cpu_ns / events, wall_ns / events);
    return 0;
}
