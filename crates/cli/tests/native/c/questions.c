// Calls glibc's statistics of the heap, and checks that free keeps errno if the kernel refuses advice. Prints each
// result.
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { MANY = 1000, BYTES = 1000, HUGE = 10 << 20 };

static void check(const char *what, int holds) { printf("%s: %s\n", what, holds ? "yes" : "no"); }

// Checks the text of malloc_info. The stream in memory is opened before, so that it does not allocate during the call.
static void information(void) {
  static char text[1 << 16];
  FILE *stream = fmemopen(text, sizeof text, "w");
  check("malloc_info refuses options", malloc_info(1, stream) == EINVAL);
  check("malloc_info writes", malloc_info(0, stream) == 0);
  fclose(stream);
  check("malloc_info is XML", !strncmp(text, "<malloc version=\"1\">\n", 21) && strstr(text, "</malloc>") != NULL);
  const char *maps = strstr(text, "<total type=\"mmap\" count=\"1\" size=\"");
  check("malloc_info counts the huge block", maps && atol(strstr(maps, "size=\"") + 6) >= HUGE);
}

int main(void) {
  char *block[MANY];
  struct mallinfo2 before = mallinfo2();
  for (int i = 0; i < MANY; i++) block[i] = malloc(BYTES);
  char *huge = malloc(HUGE);
  struct mallinfo2 full = mallinfo2();
  int old = mallinfo().uordblks;
  size_t more = full.uordblks - before.uordblks;
  check("uordblks grows by what is allocated", more >= MANY * BYTES && more < 2 * MANY * BYTES);
  check("arena is the sum of used and free bytes", full.arena == full.uordblks + full.fordblks);
  check("hblks counts the huge block", full.hblks == before.hblks + 1);
  check("hblkhd has its bytes", full.hblkhd - before.hblkhd >= HUGE);
  check("mallinfo says the same", old == (int)full.uordblks);
  information();
  for (int i = 0; i < MANY; i++) free(block[i]);
  free(huge);
  struct mallinfo2 empty = mallinfo2();
  check("uordblks shrinks again", empty.uordblks < before.uordblks + MANY * BYTES / 10);
  check("hblks shrinks again", empty.hblks == before.hblks);
  malloc_trim(0);
  check("nothing is left to trim", mallinfo2().keepcost < 1 << 20);
  check("mallopt knows its parameters", mallopt(M_ARENA_MAX, 1) == 1);

  // madvise cannot purge locked memory.
  char *locked = malloc(4 << 20);
  memset(locked, 1, 4 << 20);
  mlock(locked, 4 << 20);
  errno = 1234;
  free(locked);
  check("free keeps errno", errno == 1234);
  return 0;
}
