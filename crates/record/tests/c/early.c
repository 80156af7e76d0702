// A library that allocates before the recorder is initialised, because the program's dependencies are initialised
// before preloaded objects.
#include <stdlib.h>

__attribute__((constructor)) static void begin(void) {
    for (int i = 0; i < 7; i++) {
        void *volatile block = malloc(4242);
        free(block);
    }
}
