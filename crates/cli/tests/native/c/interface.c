// The whole C interface where its behaviour is defined. Prints the results, which must equal those on glibc.
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Functions that some C libraries lack: weak definitions that call free, as the real functions do.
__attribute__((weak)) void free_sized(void *block, size_t bytes) { (void)bytes, free(block); }
__attribute__((weak)) void free_aligned_sized(void *block, size_t align, size_t bytes) { (void)align, (void)bytes, free(block); }

static int is_aligned(void *block, size_t align) { return (uintptr_t)block % align == 0; }

static int is_zero(const unsigned char *bytes, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (bytes[i]) return 0;
  return 1;
}

static void *volatile keep;
#define HUGE_COUNT ((size_t)1 << 40)
#define SHOW(expression) printf("%s: %ld\n", #expression, (long)(expression))
#define FAILS(expression) (errno = 0, keep = (expression), printf("%s: %s %d\n", #expression, keep ? "gives" : "null", errno))

static void sizes(void) {
  int aligned = 1, usable = 1, fills = 1;
  for (size_t bytes = 0; bytes < 5000000; bytes += 1 + bytes / 37) {
    unsigned char *block = malloc(bytes);
    aligned &= is_aligned(block, bytes <= 8 ? 8 : 16);
    usable &= malloc_usable_size(block) >= bytes;
    memset(block, 0xEE, malloc_usable_size(block));
    unsigned char *zeroed = calloc(1, bytes);
    fills &= is_zero(zeroed, bytes) && is_aligned(zeroed, bytes <= 8 ? 8 : 16);
    memset(zeroed, 0xEE, malloc_usable_size(zeroed));
    if (bytes % 3) free(block); else free_sized(block, bytes);
    free(zeroed);
  }
  SHOW(aligned), SHOW(usable), SHOW(fills);
  SHOW(malloc(0) != NULL), SHOW(calloc(0, 5) != NULL), SHOW(malloc(0) != malloc(0));
  SHOW(malloc_usable_size(NULL));
  free(NULL), free_sized(NULL, 0), free_aligned_sized(NULL, 8, 8);
}

static void alignments(void) {
  int all = 1, kept = 1;
  for (size_t align = 8; align <= 8 << 20; align *= 2)
    for (size_t bytes = 1; bytes < 300000; bytes = bytes * 3 + align / 7) {
      void *blocks[6] = {aligned_alloc(align, bytes), memalign(align, bytes), valloc(bytes), pvalloc(bytes), 0, 0};
      all &= !posix_memalign(&blocks[4], align, bytes);
      all &= is_aligned(blocks[0], align) && is_aligned(blocks[1], align) && is_aligned(blocks[4], align);
      all &= is_aligned(blocks[2], 4096) && is_aligned(blocks[3], 4096) && malloc_usable_size(blocks[3]) >= 4096;
      for (int i = 0; i < 5; i++) memset(blocks[i], 17 + i, bytes);
      blocks[0] = realloc(blocks[0], bytes + 100);
      for (size_t at = 0; at < bytes; at++) kept &= ((char *)blocks[0])[at] == 17;
      free_aligned_sized(blocks[1], align, bytes);
      free(blocks[0]), free(blocks[2]), free(blocks[3]), free(blocks[4]);
    }
  SHOW(all), SHOW(kept);
  void *out = &out;
  SHOW(posix_memalign(&out, 3, 8)), SHOW(posix_memalign(&out, 4, 8)), SHOW(posix_memalign(&out, 0, 8));
  SHOW(posix_memalign(&out, 64, PTRDIFF_MAX)), SHOW(out == &out);
}

static void reallocs(void) {
  int kept = 1;
  unsigned char *block = realloc(NULL, 1);
  block[0] = 0;
  size_t filled = 1;
  for (size_t bytes = 1; bytes < 30000000; bytes += 1 + bytes / 5) {
    block = realloc(block, bytes);
    for (; filled < bytes; filled++) block[filled] = (unsigned char)(filled * 7);
  }
  for (size_t bytes = filled; bytes > 1; bytes = bytes * 3 / 5) {
    block = realloc(block, bytes);
    for (size_t at = 1; at < bytes; at += 1 + at / 3) kept &= block[at] == (unsigned char)(at * 7);
  }
  SHOW(kept);
  errno = 0;
  SHOW(realloc(block, 0) == NULL), SHOW(errno);
  block = reallocarray(NULL, 10, 10);
  memset(block, 3, 100);
  FAILS(reallocarray(block, HUGE_COUNT, HUGE_COUNT));
  SHOW(block[99]);
  FAILS(realloc(block, (size_t)PTRDIFF_MAX + 1));
  SHOW(block[99]);
  free(block);
}

static void failures(void) {
  size_t volatile most = SIZE_MAX;
  FAILS(malloc(most)), FAILS(malloc(most / 2)), FAILS(malloc((size_t)PTRDIFF_MAX + 1));
  FAILS(calloc(most, 2)), FAILS(calloc(HUGE_COUNT, HUGE_COUNT)), FAILS(calloc(most, 1));
  FAILS(pvalloc(most)), FAILS(valloc(most)), FAILS(memalign(64, most)), FAILS(aligned_alloc(64, most - 63));
  errno = 77;
  free(malloc(3000000)), free(malloc(10));
  SHOW(errno);
}

int main(void) {
  sizes(), alignments(), reallocs(), failures();
}
