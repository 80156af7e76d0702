// Prints statistics while 500 blocks are live.
#include <malloc.h>
#include <stdlib.h>

int main(void) {
  for (int i = 0; i < 500; i++) malloc(100);
  malloc_stats();
  return 0;
}
