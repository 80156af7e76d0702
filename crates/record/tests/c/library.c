// A library to load. It has thread-local storage in the static block, and allocates when it is loaded.
#include <stdlib.h>
static __thread int used __attribute__((tls_model("initial-exec")));
static void *kept;
__attribute__((constructor)) static void begin(void) { kept = malloc(4999); }
__attribute__((destructor)) static void end(void) { free(kept); }
void *make(size_t n) { used++; return malloc(n); }
void take(void *block) { free(block); }
