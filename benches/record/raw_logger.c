// A plain preloaded logger. It writes 16 bytes per call (time and operation, address and size) to a 256 KiB buffer per
// thread. A full buffer is written to $RAW_LOG.TID. It serves as a baseline: it records only malloc and free, and its
// buffers are lost in a crash.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <x86intrin.h>

#define LOCAL static __thread __attribute__((tls_model("initial-exec")))
enum { RECORDS = 256 * 1024 / 16 };
struct record { uint64_t time_op, address_size; };
LOCAL struct record *at, *end, *buffer;
LOCAL int file;
static void *(*real_malloc)(size_t);
static void (*real_free)(void *);

__attribute__((constructor)) static void find(void) {
    real_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
    real_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
}

static __attribute__((noinline, cold)) void make_room(void) {
    if (!buffer) {
        char name[4096];
        const char *base = getenv("RAW_LOG");
        snprintf(name, sizeof name, "%s.%ld", base ? base : "raw_log", (long)syscall(SYS_gettid));
        file = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        buffer = mmap(0, RECORDS * sizeof *buffer, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (buffer == MAP_FAILED) abort();
        end = buffer + RECORDS;
    } else if (write(file, buffer, RECORDS * sizeof *buffer) < 0) {
        abort();
    }
    at = buffer;
}

static inline void log_call(uint64_t operation, void *block, size_t size) {
    if (__builtin_expect(at == end, 0)) make_room();
    *at++ = (struct record){__rdtsc() << 2 | operation, (uint64_t)block << 16 | (uint16_t)size};
}

void *malloc(size_t size) {
    if (__builtin_expect(!real_malloc, 0)) find();
    void *block = real_malloc(size);
    log_call(1, block, size);
    return block;
}

void free(void *block) {
    if (__builtin_expect(!real_free, 0)) find();
    log_call(2, block, 0);
    real_free(block);
}
