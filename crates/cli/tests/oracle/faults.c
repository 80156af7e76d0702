/* Touches a known number of pages in each region; prints what an observer must find. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>
#define PAGE 4096
static char zeroed[20 * PAGE] __attribute__((aligned(PAGE)));
int main(void) {
    volatile char *map = mmap(0, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    madvise((void *)map, 64 * PAGE, MADV_NOHUGEPAGE);
    for (int i = 0; i < 40; i++) map[i * PAGE] = 1;
    madvise((void *)map, 10 * PAGE, MADV_DONTNEED);
    for (int i = 0; i < 10; i++) map[i * PAGE] = 1;
    char sum = 0;
    for (int i = 50; i < 57; i++) sum += map[i * PAGE];
    for (int i = 50; i < 57; i++) map[i * PAGE] = 2;
    volatile char *heap = sbrk(30 * PAGE);
    for (int i = 0; i < 30; i++) heap[i * PAGE] = 1;
    for (int i = 0; i < 20; i++) ((volatile char *)zeroed)[i * PAGE] = 1;
    printf("%lx %lx %lx\n", (long)map, (long)heap, (long)zeroed);
    return sum;
}
