// The minimal preloaded recorder: it only counts the calls of each thread. Writes the main thread's count to $COUNT_FILE.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static __thread __attribute__((tls_model("initial-exec"))) uint64_t calls;
static void *(*real_malloc)(size_t);
static void *(*real_calloc)(size_t, size_t);
static void *(*real_realloc)(void *, size_t);
static void (*real_free)(void *);

__attribute__((constructor)) static void find(void) {
    real_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    real_calloc = (void *(*)(size_t, size_t))dlsym(RTLD_NEXT, "calloc");
    real_realloc = (void *(*)(void *, size_t))dlsym(RTLD_NEXT, "realloc");
    real_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
}

__attribute__((destructor)) static void write_count(void) {
    uint64_t counted = calls;
    const char *name = getenv("COUNT_FILE");
    FILE *file = name ? fopen(name, "w") : 0;
    if (!file) return;
    fprintf(file, "%lu\n", (unsigned long)counted);
    fclose(file);
}

void *malloc(size_t size) {
    if (__builtin_expect(!real_malloc, 0)) find();
    calls++;
    return real_malloc(size);
}

void *calloc(size_t count, size_t size) {
    if (__builtin_expect(!real_calloc, 0)) find();
    calls++;
    return real_calloc(count, size);
}

void *realloc(void *block, size_t size) {
    if (__builtin_expect(!real_realloc, 0)) find();
    calls++;
    return real_realloc(block, size);
}

void free(void *block) {
    if (__builtin_expect(!real_free, 0)) find();
    calls++;
    real_free(block);
}
