// A preloaded library that counts calls per function. It writes the counts to a file whose name is the value of the
// session variable plus the process id. So the environment has the same variables as under the recorder.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MALLOC, CALLOC, REALLOC, ALIGNED, FREE, FREE_NULL, USABLE, FUNCTIONS };
static uint64_t early[FUNCTIONS];
static uint64_t *counts = early;

static char pool[65536];
static size_t pool_used;
static int looking;
static int in_pool(void *p) { return (char *)p >= pool && (char *)p < pool + sizeof pool; }

static void *next(const char *name) {
    looking = 1;
    void *volatile found = dlsym(RTLD_NEXT, name);
    looking = 0;
    return found;
}
#define REAL(result, name, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result(*)(__VA_ARGS__))next(name)
#define COUNT(what) __atomic_fetch_add(&counts[what], 1, __ATOMIC_RELAXED)

static void *from_pool(size_t n) {
    char *p = pool + pool_used;
    pool_used += (n + 15) & ~(size_t)15;
    return pool_used <= sizeof pool ? p : 0;
}

__attribute__((constructor)) static void begin(void) {
    char name[4096];
    const char *base = getenv("HKSIM_RECORD_SESSION");
    if (!base) return;
    snprintf(name, sizeof name, "%s.%d", base, (int)getpid());
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, sizeof early)) return;
    uint64_t *shared = mmap(0, sizeof early, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (shared == MAP_FAILED) return;
    memcpy(shared, early, sizeof early);
    counts = shared;
}

void *malloc(size_t n) { if (looking) return from_pool(n); REAL(void *, "malloc", size_t); COUNT(MALLOC); return real(n); }
void *calloc(size_t c, size_t n) { if (looking) return from_pool(c * n); REAL(void *, "calloc", size_t, size_t); COUNT(CALLOC); return real(c, n); }
static void *resize(void *p, size_t n) { REAL(void *, "realloc", void *, size_t); return real(p, n); }
void *realloc(void *p, size_t n) { COUNT(REALLOC); return resize(p, n); }
void *reallocarray(void *p, size_t c, size_t n) {
    size_t bytes;
    COUNT(REALLOC);
    if (__builtin_mul_overflow(c, n, &bytes)) { errno = ENOMEM; return 0; }
    return resize(p, bytes);
}
void free(void *p) { if (in_pool(p)) return; REAL(void, "free", void *); COUNT(p ? FREE : FREE_NULL); real(p); }
int posix_memalign(void **p, size_t a, size_t n) { REAL(int, "posix_memalign", void **, size_t, size_t); COUNT(ALIGNED); return real(p, a, n); }
void *aligned_alloc(size_t a, size_t n) { REAL(void *, "aligned_alloc", size_t, size_t); COUNT(ALIGNED); return real(a, n); }
void *memalign(size_t a, size_t n) { REAL(void *, "memalign", size_t, size_t); COUNT(ALIGNED); return real(a, n); }
void *valloc(size_t n) { REAL(void *, "valloc", size_t); COUNT(ALIGNED); return real(n); }
void *pvalloc(size_t n) { REAL(void *, "pvalloc", size_t); COUNT(ALIGNED); return real(n); }
size_t malloc_usable_size(void *p) { REAL(size_t, "malloc_usable_size", void *); if (p) COUNT(USABLE); return real(p); }
