// Interposes an allocator (first in LD_PRELOAD) and checks every pointer that it returns. A pointer must be aligned to
// 16 bytes (8 for requests of up to 8 bytes), or to the requested alignment if that is larger. It must not be null,
// except for excessive sizes. If a check fails, the library aborts with a line on standard error. At exit it appends
// the number of pointers to the file HKSIM_ALIGNMENT_LOG.
//
//     cc -O2 -shared -fPIC -o alignment.so alignment.c -ldl
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_ulong looked_at;

// Serves the requests of dlsym itself before the real functions are known. Its blocks are never freed.
static char early[4096] __attribute__((aligned(16)));
static atomic_ulong early_used;

static void *from_early(size_t bytes) {
  size_t at = atomic_fetch_add(&early_used, (bytes + 15) / 16 * 16);
  if (at + bytes > sizeof early) abort();
  return early + at;
}

static int is_early(void *block) { return (char *)block >= early && (char *)block < early + sizeof early; }

static __thread int resolving __attribute__((tls_model("initial-exec")));

static void *next(const char *name) {
  resolving++;
  void *found = dlsym(RTLD_NEXT, name);
  resolving--;
  if (!found) abort();
  return found;
}

#define NEXT(name) ((__typeof__(&name))({ \
    static _Atomic(void *) found; \
    void *known = atomic_load(&found); \
    if (!known) atomic_store(&found, known = next(#name)); \
    known; }))

static void *look(void *block, size_t bytes, size_t align, const char *call) {
  size_t least = bytes <= 8 ? 8 : 16;
  if (align > least) least = align;
  atomic_fetch_add_explicit(&looked_at, 1, memory_order_relaxed);
  if (block && (uintptr_t)block % least == 0) return block;
  if (!block && bytes > (size_t)1 << 30) return block; // a test of an excessive request
  char line[160];
  int length = snprintf(line, sizeof line, "alignment: %s of %zu bytes, alignment %zu, gave %p\n", call, bytes, least, block);
  if (write(2, line, length) < 0) abort();
  abort();
}

void *malloc(size_t bytes) {
  if (resolving) return from_early(bytes);
  return look(NEXT(malloc)(bytes), bytes, 1, "malloc");
}

void *calloc(size_t count, size_t bytes) {
  if (resolving) return from_early(count * bytes);
  size_t all;
  void *block = NEXT(calloc)(count, bytes);
  if (__builtin_mul_overflow(count, bytes, &all)) return block;
  return look(block, all, 1, "calloc");
}

void free(void *block) {
  if (!is_early(block)) NEXT(free)(block);
}

void *realloc(void *old, size_t bytes) {
  if (resolving || is_early(old)) {
    void *block = malloc(bytes);
    size_t available = early + sizeof early - (char *)old;
    return old ? memcpy(block, old, bytes < available ? bytes : available) : block;
  }
  void *block = NEXT(realloc)(old, bytes);
  return old && !bytes ? block : look(block, bytes, 1, "realloc");
}

void *memalign(size_t align, size_t bytes) {
  void *block = NEXT(memalign)(align, bytes);
  // Values that are not powers of two are rounded up.
  return block ? look(block, bytes, align & (align - 1) ? 1 : align, "memalign") : block;
}

void *aligned_alloc(size_t align, size_t bytes) {
  void *block = NEXT(aligned_alloc)(align, bytes);
  return block ? look(block, bytes, align, "aligned_alloc") : block;
}

void *valloc(size_t bytes) {
  void *block = NEXT(valloc)(bytes);
  return block ? look(block, bytes, getpagesize(), "valloc") : block;
}

int posix_memalign(void **out, size_t align, size_t bytes) {
  int why = NEXT(posix_memalign)(out, align, bytes);
  if (!why) look(*out, bytes, align, "posix_memalign");
  return why;
}

__attribute__((destructor)) static void log_count(void) {
  const char *log = getenv("HKSIM_ALIGNMENT_LOG");
  int file = log ? open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : -1;
  if (file < 0) return;
  char line[64];
  int length = snprintf(line, sizeof line, "%lu\n", atomic_load(&looked_at));
  if (write(file, line, length) < 0) abort();
  close(file);
}
