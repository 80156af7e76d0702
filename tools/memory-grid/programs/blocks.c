// Allocates, resizes and frees blocks of many sizes: `blocks SEED`. The sequence depends on the seed only.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS 20000

static uint64_t state;

// xorshift64*
static uint64_t draw(uint64_t below) {
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return (state * 2685821657736338717ull >> 11) % below;
}

static struct {
    char *block;
    size_t bytes;
} slots[SLOTS];

int main(int count, char **words) {
    state = (count > 1 ? strtoull(words[1], NULL, 10) : 1) * 2654435769u + 88172645463325252ull;
    for (int step = 0; step < 200000; step++) {
        int slot = draw(SLOTS);
        size_t bytes = 1 + draw(draw(200) ? 1500 : draw(20) ? 300000 : 5000000);
        if (slots[slot].block && draw(3)) {
            free(slots[slot].block);
            slots[slot].block = NULL;
        } else if (slots[slot].block) {
            slots[slot].block = realloc(slots[slot].block, bytes);
        } else {
            slots[slot].block = draw(4) ? malloc(bytes) : calloc(1, bytes);
            if (draw(3)) memset(slots[slot].block, 5, bytes);
        }
        slots[slot].bytes = bytes;
    }
    return 0;
}
