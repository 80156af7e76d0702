/* A module that is opened while the program is recorded. It allocates when it is loaded, and when it is called. */
#include <stdlib.h>

__attribute__((constructor)) static void begin(void) { free(malloc(1092)); }

void allocate(long blocks) {
    for (long i = 0; i < blocks; i++) free(malloc(1093));
}
