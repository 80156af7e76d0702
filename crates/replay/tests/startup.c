// A malloc library that uses 8 MiB before its first call, when it is loaded. Otherwise it is the C library's.

#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

__attribute__((constructor)) static void begin(void) {
    size_t bytes = 8 << 20;
    void *start = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start != MAP_FAILED) memset(start, 1, bytes);
}

void *malloc(size_t bytes) { return __libc_malloc(bytes); }
void *calloc(size_t count, size_t bytes) { return __libc_calloc(count, bytes); }
void *realloc(void *block, size_t bytes) { return __libc_realloc(block, bytes); }
void *memalign(size_t align, size_t bytes) { return __libc_memalign(align, bytes); }
void free(void *block) { __libc_free(block); }
