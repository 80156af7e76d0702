// Allocates up to 64 MiB in small and medium blocks, or until a request fails. Frees every other block, and must then
// get 99 % of those bytes again: medium blocks are in slabs of several slices, which do not fit every gap. Prints the
// number of bytes allocated, and "kept" if no block changed.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS_MAX = 1 << 16 };
static const size_t limit = 64 << 20;
static unsigned char *blocks[BLOCKS_MAX];
static size_t sizes[BLOCKS_MAX];

static size_t size_of(int i) { return 200 + (size_t)i * 7919 % 3000 + (i % 50 == 0) * 40000; }

static int take(int i) {
  errno = 0;
  unsigned char *block = malloc(sizes[i] = size_of(i));
  if (!block) return errno == ENOMEM ? 0 : (puts("refused without ENOMEM"), exit(1), 0);
  memset(blocks[i] = block, i % 251, sizes[i]);
  return 1;
}

static void check(int i) {
  for (size_t at = 0; at < sizes[i]; at += 61)
    if (blocks[i][at] != i % 251) puts("changed"), exit(1);
}

int main(void) {
  int count = 0;
  size_t bytes = 0;
  while (count < BLOCKS_MAX && bytes < limit && take(count)) bytes += sizes[count++];
  size_t given = 0, refused = 0;
  for (int i = 0; i < count; i += 2) check(i), free(blocks[i]), given += sizes[i];
  for (int i = 0; i < count; i += 2)
    if (!take(i)) refused += sizes[i], sizes[i] = 0, blocks[i] = NULL;
  if (refused > given / 100) puts("freed memory cannot be allocated again"), exit(1);
  for (int i = 0; i < count; i++) check(i), free(blocks[i]);
  printf("%zu kept\n", bytes);
  return 0;
}
