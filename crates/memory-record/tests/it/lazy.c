/* Gives memory in small pages up with MADV_FREE, and waits for the end of its input.
 *
 * lazy MIB WAY
 *
 * WAY: "all" gives all of it up, "half" every second page, "written" all of it and writes every fourth page again. It
 * prints the address, the bytes, and LazyFree of the mapping in kB as smaps says. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static long lazy_kb(unsigned long address) {
    char line[256];
    unsigned long from, to;
    long figure, found = -1;
    int is_inside = 0;
    FILE *file = fopen("/proc/self/smaps", "r");
    while (file && fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) is_inside = from <= address && address < to;
        else if (is_inside && sscanf(line, "LazyFree: %ld", &figure) == 1) found = figure;
    }
    if (file) fclose(file);
    return found;
}

int main(int count, char **words) {
    size_t bytes = (count > 1 ? strtoul(words[1], NULL, 10) : 1) << 20;
    const char *way = count > 2 ? words[2] : "all";
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || madvise(memory, bytes, MADV_NOHUGEPAGE)) return 1;
    memset(memory, 1, bytes);
    if (strcmp(way, "half") == 0)
        for (size_t at = 0; at < bytes; at += 2 * 4096) {
            if (madvise(memory + at, 4096, MADV_FREE)) return 2;
        }
    else if (madvise(memory, bytes, MADV_FREE)) return 2;
    if (strcmp(way, "written") == 0)
        for (size_t at = 0; at < bytes; at += 4 * 4096) memory[at] = 2;
    printf("%lu %lu %ld\n", (unsigned long)memory, (unsigned long)bytes, lazy_kb((unsigned long)memory));
    fflush(stdout);
    while (getchar() != EOF) {}
    return 0;
}
