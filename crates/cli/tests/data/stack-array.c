// Touches an array of BYTES on the main stack, upward or downward, advised or not, and prints the page faults of that.
#include <alloca.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

static long faults(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

int main(int count, char **arguments)
{
    if (count != 4)
        return 1;
    size_t bytes = strtoul(arguments[1], 0, 0);
    volatile char *array = alloca(bytes);
    printf("an array\n");
    long before = faults();
    if (strcmp(arguments[2], "up") == 0) {
        array[0] = 1;
        if (strcmp(arguments[3], "advised") == 0) {
            uintptr_t start = ((uintptr_t)array + 4095) & ~4095ul;
            madvise((void *)start, ((uintptr_t)array + bytes - start) & ~4095ul, MADV_HUGEPAGE);
        }
        for (size_t at = 0; at < bytes; at += 4096)
            array[at] = 1;
    } else {
        for (size_t at = bytes; at > 0; at -= 4096)
            array[at - 1] = 1;
    }
    printf("%ld\n", faults() - before);
    return 0;
}
