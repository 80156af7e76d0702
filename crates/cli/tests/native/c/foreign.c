// Frees a pointer that malloc did not return. The argument selects the pointer.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static char fixed[64];

int main(int argc, char **argv) {
  char local[64], *block = malloc(64);
  void *volatile foreign = fixed + 16;
  if (!strcmp(argv[1], "local")) foreign = local + 16;
  if (!strcmp(argv[1], "mapped")) foreign = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!strcmp(argv[2], "realloc")) return !realloc(foreign, 100);
  free(foreign);
  free(block);
  return 0;
}
