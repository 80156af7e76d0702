// A library that asks for memory before the recorder is set up: what the program needs begins before what is preloaded.
#include <stdlib.h>

__attribute__((constructor)) static void begin(void) {
    for (int i = 0; i < 7; i++) {
        void *volatile block = malloc(4242);
        free(block);
    }
}
