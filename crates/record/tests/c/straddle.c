/* Allocates blocks with calloc, writes their start, and then reads and writes their end. The end of a block of 144 bytes
   is accessed immediately, that of a block of 80 bytes only after all blocks have been allocated. */
#include <stdlib.h>

enum { BLOCKS = 4000, SOON = 144, LATE = 80 };

int main(void) {
    static volatile char *late[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        volatile char *block = calloc(1, SOON);
        block[0] = 1;
        block[SOON - 1] += 1;
    }
    for (int i = 0; i < BLOCKS; i++) {
        late[i] = calloc(1, LATE);
        late[i][0] = 1;
    }
    for (int i = 0; i < BLOCKS; i++)
        late[i][LATE - 1] += 1;
    return 0;
}
