// A library that allocates SIZE bytes.
#include <stdlib.h>

void plugged(void)
{
    void *block = malloc(SIZE); // asks: plugged
    __asm__ volatile("" : : "r"(block) : "memory");
    free(block);
}
