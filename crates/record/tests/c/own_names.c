// Calls jemalloc's non-standard functions, and once the standard malloc.
#include <stdlib.h>
extern void *mallocx(size_t, int);
extern void dallocx(void *, int);
int main(void) {
    void *volatile p = mallocx(100, 0);
    dallocx(p, 0);
    free(malloc(50));
    return 0;
}
