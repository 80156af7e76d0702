// Maps private anonymous memory of one kind, advises a part, writes to most of it, and prints the resident and huge KiB of it.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define START 0x200000000UL
#define MIB (1UL << 20)

static int open_flags(const char *kind, int *flags)
{
    int fixed = MAP_FIXED_NOREPLACE;
    if (strcmp(kind, "zero-device") == 0) {
        *flags = MAP_PRIVATE | fixed;
        return open("/dev/zero", O_RDWR);
    }
    // MAP_DROPPABLE (Linux 6.11) is another type of mapping than MAP_PRIVATE.
    *flags = MAP_ANONYMOUS | fixed | (strcmp(kind, "droppable") == 0 ? 8 : MAP_PRIVATE);
    return -1;
}

int main(int count, char **arguments)
{
    if (count != 2)
        return 1;
    int flags, file = open_flags(arguments[1], &flags);
    char *memory = mmap((void *)START, 6 * MIB, PROT_READ | PROT_WRITE, flags, file, 0);
    if (memory == MAP_FAILED)
        return 2;
    madvise(memory, 4 * MIB, MADV_HUGEPAGE);
    for (size_t at = 0; at < 5 * MIB; at += 4096)
        memory[at] = 1;
    unsigned long start, value, resident = 0, huge = 0, inside = 0;
    char line[512];
    FILE *smaps = fopen("/proc/self/smaps", "r");
    while (smaps && fgets(line, sizeof line, smaps)) {
        if (sscanf(line, "%lx-%*x %*4s", &start) == 1 && strchr(line, '-'))
            inside = start >= START && start < START + 6 * MIB;
        else if (inside && sscanf(line, "Rss: %lu", &value) == 1)
            resident += value;
        else if (inside && sscanf(line, "AnonHugePages: %lu", &value) == 1)
            huge += value;
    }
    printf("%lu %lu\n", resident, huge);
    return 0;
}
