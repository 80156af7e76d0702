// Keeps the blocks that its statistics must show: 500 of 1000 blocks of 100 bytes, one of 100 KB, one of 5 MB.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char *blocks[1000], *large, *huge;

int main(void) {
  for (int i = 0; i < 1000; i++) blocks[i] = memset(malloc(100), 1, 100);
  for (int i = 0; i < 1000; i += 2) free(blocks[i]);
  large = malloc(100000), huge = malloc(5000000);
  // Many programs close their standard streams; the statistics must be printed anyway.
  close(1), close(2);
}
