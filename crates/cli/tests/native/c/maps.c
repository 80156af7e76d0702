// Uses the heap while the process is at its limit of mappings (vm.max_map_count), and afterwards. At the limit a
// request may fail, but no block may change.
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { BLOCKS = 300, PAGE = 4096 };
static unsigned char *blocks[BLOCKS];
static size_t sizes[BLOCKS];
static uint64_t state = 88172645463325252;

static uint64_t next(void) { return state ^= state << 13, state ^= state >> 7, state ^= state << 17; }

static void drop(int i) {
  if (!blocks[i]) return;
  for (size_t at = 0; at < sizes[i]; at += 509)
    if (blocks[i][at] != i % 251) puts("changed"), exit(1);
  free(blocks[i]), blocks[i] = NULL;
}

static void churn(int rounds) {
  for (int round = 0; round < rounds; round++) {
    int i = next() % BLOCKS;
    drop(i);
    sizes[i] = 1 + next() % (next() % 20 ? 5000 : 3000000);
    if ((blocks[i] = malloc(sizes[i]))) memset(blocks[i], i % 251, sizes[i]);
    else if (errno != ENOMEM) puts("refused without ENOMEM"), exit(1);
  }
}

int main(void) {
  churn(5000);
  // Every second page has another protection and is therefore a mapping of its own.
  size_t pages = 1 << 18;
  char *filler = mmap(NULL, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  size_t at = 0;
  while (at < pages && !mprotect(filler + at * PAGE, PAGE, PROT_READ)) at += 2;
  printf("the limit is reached: %d\n", at < pages);
  churn(20000);
  munmap(filler, pages * PAGE);
  churn(20000);
  void *more = malloc(1 << 20);
  printf("1 MiB afterwards: %d\n", more != NULL);
  free(more);
  for (int i = 0; i < BLOCKS; i++) drop(i);
  return 0;
}
