// An allocator whose realloc frees the old address, and returns only after another thread has been given that address.
#include <sched.h>
#define malloc bump
#define realloc bump_again
#include "bump.c"
#undef malloc
#undef realloc

void *volatile away;

void *malloc(size_t n) {
    void *p = __atomic_exchange_n(&away, 0, __ATOMIC_ACQ_REL);
    return p ? p : bump(n);
}
void *realloc(void *p, size_t n) {
    if (!p) return bump(n);
    void *q = memcpy(bump(n), p, 16); // every block has at least 16 bytes; none of these calls is recorded
    away = p;
    while (away) sched_yield();
    return q;
}
