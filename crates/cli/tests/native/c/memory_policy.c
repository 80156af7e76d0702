// Disables huge pages for itself and locks 32 KiB; with an argument, does neither. Exit 77 if that is refused.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

int main(int count, char **words) {
    if (count > 1) return malloc(1 << 20) == 0;
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)) return 77;
    char *area = mmap(0, 32 << 10, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mlock(area, 32 << 10)) return 77;
    memset(malloc(1 << 20), 1, 1 << 20);
    return 0;
}
