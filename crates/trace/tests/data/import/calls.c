// Calls every allocator function at least once, in main and in two threads that run one after the other. The number of
// calls of each function is known. The tests of the importers compile this program and record it with other tools.
#include <malloc.h>
#include <mcheck.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// C++'s operators, by their names in the library.
void *_Znwm(size_t size);
void _ZdlPv(void *block);
void *_ZnwmSt11align_val_t(size_t size, size_t align);
void _ZdlPvSt11align_val_t(void *block, size_t align);

static void *handed_over;

static void *body(void *number) {
    void *blocks[8];
    for (int i = 0; i < 8; i++) blocks[i] = malloc(100 * (uintptr_t)number + i);
    for (int i = 0; i < 8; i++) free(blocks[i]);
    free(handed_over); // allocated by another thread
    handed_over = malloc(777);
    return NULL;
}

int main(int count, char **arguments) {
    if (getenv("MALLOC_TRACE")) mtrace();
    volatile size_t absurd = (size_t)1 << 62;
    char *a = malloc(100);
    a = realloc(a, 5000);
    void *b = calloc(3, 40);
    void *c = NULL;
    if (posix_memalign(&c, 256, 1000) != 0) return 1;
    void *d = aligned_alloc(64, 640);
    void *e = memalign(4096, 4096);
    void *f = valloc(300);
    void *g = count > 1 && *arguments[1] == 'v' ? valloc(300) : pvalloc(300); // valgrind has no pvalloc
    void *h = reallocarray(NULL, 7, 9);
    h = reallocarray(h, 10, 9);
    void *i = malloc(33);
    i = realloc(i, 0);
    void *j = malloc(absurd);
    void *k = _Znwm(1234);
    void *l = _ZnwmSt11align_val_t(128, 64);
    handed_over = malloc(malloc_usable_size(b) > 0 ? 555 : 1);
    for (uintptr_t number = 1; number <= 2; number++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, body, (void *)number) != 0) return 1;
        pthread_join(thread, NULL);
    }
    free(NULL);
    _ZdlPvSt11align_val_t(l, 64);
    _ZdlPv(k);
    free(a), free(b), free(c), free(d), free(e), free(f), free(g), free(h), free(i), free(j);
    fputs("not a call: malloc(12 = no\n", stderr);
    return 0; // the second 777 is never freed
}
