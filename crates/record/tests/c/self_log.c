// Four workers call random allocating functions. They log each call in a shared file, once before the call and once
// after its return. The log is the oracle: it survives, whichever way the process ends. Usage: self_log LOG
// exit|_exit|abort|kill SEED With -DMAIN_WORKS the first worker is the main thread. While it works, the others make
// their first call one after another.
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef WORKERS
#define WORKERS 4
#endif
#ifdef MAIN_WORKS
enum { FIRST_THREAD = 1, ALONE = 10000 };
#else
enum { FIRST_THREAD = 0, ALONE = 0 };
#endif
enum { ENTRIES = 1 << 20, ENOUGH = 60000, SLOTS = 64, MAILBOXES = 32 };
enum { MALLOC, CALLOC, REALLOC, REALLOCARRAY, POSIX_MEMALIGN, ALIGNED_ALLOC, MEMALIGN, VALLOC, PVALLOC, FREE, USABLE };

struct entry { uint32_t function, align_log2; uint64_t size; uint64_t done; };
static struct entry *log_of[WORKERS];
static volatile uint32_t progress[WORKERS];
static void *volatile mailbox[MAILBOXES];
static uint64_t seed;
static volatile size_t too_much = (size_t)-1 / 2 + 1;

struct worker { int number; uint32_t used; uint64_t random; void *slot[SLOTS]; size_t bytes[SLOTS]; };

static uint64_t draw(struct worker *w) {
    w->random ^= w->random << 13; w->random ^= w->random >> 7; w->random ^= w->random << 17;
    return w->random;
}

static void enter(struct worker *w, int function, uint64_t size, int align_log2) {
    struct entry *e = &log_of[w->number][w->used];
    e->function = function + 1; e->size = size; e->align_log2 = align_log2;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

static void leave(struct worker *w) {
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    log_of[w->number][w->used].done = 1;
    progress[w->number] = ++w->used;
}

static void drop(struct worker *w, void *p, size_t bytes) { enter(w, FREE, p ? bytes : 0, 0); free(p); leave(w); }

static void allocate(struct worker *w, int k) {
    size_t n = 16 + draw(w) % (draw(w) % 50 ? 500 : 200000);
    int a = 4 + draw(w) % 9;
    void *p = 0;
    switch (draw(w) % 12) {
    default: enter(w, MALLOC, n, 0); p = malloc(n); leave(w); break;
    case 0: enter(w, CALLOC, n, 0); p = calloc(1, n); leave(w); break;
    case 1: enter(w, REALLOC, n, 0); p = realloc(0, n); leave(w); break;
    case 2: n = 7 * (n / 7 + 3); enter(w, REALLOCARRAY, n, 0); p = reallocarray(0, 7, n / 7); leave(w); break;
    case 3: enter(w, POSIX_MEMALIGN, n, a); if (posix_memalign(&p, 1 << a, n)) p = 0; leave(w); break;
    case 4: n = (n >> a << a) + (1 << a); enter(w, ALIGNED_ALLOC, n, a); p = aligned_alloc(1 << a, n); leave(w); break;
    case 5: enter(w, MEMALIGN, n, a); p = memalign(1 << a, n); leave(w); break;
    case 6: enter(w, VALLOC, n, 12); p = valloc(n); leave(w); break;
    case 7: enter(w, PVALLOC, n, 12); p = pvalloc(n); leave(w); break;
    }
    if (!p) abort();
    *(size_t *)p = n;
    w->slot[k] = p; w->bytes[k] = n;
}

static void fail(struct worker *w) {
    void *p = 0;
    switch (draw(w) % 6) {
    case 5: enter(w, MEMALIGN, 64, 63); p = memalign(too_much + 1, 64); leave(w); break;
    case 0: enter(w, MALLOC, too_much, 0); p = malloc(too_much); leave(w); break;
    case 1: enter(w, CALLOC, UINT64_MAX, 0); p = calloc(too_much, 4); leave(w); break;
    case 2: enter(w, POSIX_MEMALIGN, 64, 2); if (posix_memalign(&p, 3, 64)) p = 0; leave(w); break;
    case 3: enter(w, ALIGNED_ALLOC, too_much, 6); p = aligned_alloc(64, too_much); leave(w); break;
    case 4: enter(w, FREE, 0, 0); free(0); leave(w); break;
    }
    if (p) abort();
}

static void change(struct worker *w, int k) {
    size_t n = 16 + draw(w) % 900;
    void *p = w->slot[k];
    switch (draw(w) % 6) {
    case 0: enter(w, USABLE, w->bytes[k], 0); if (malloc_usable_size(p) < w->bytes[k]) abort(); leave(w); return;
    case 1: enter(w, REALLOC, too_much, 0); if (realloc(p, too_much)) abort(); leave(w); return;
    case 2: enter(w, REALLOCARRAY, UINT64_MAX, 0); if (reallocarray(p, too_much, 8)) abort(); leave(w); return;
    case 3: enter(w, REALLOC, 0, 0); if (realloc(p, 0)) abort(); leave(w); w->slot[k] = 0; return;
    case 4: n = n / 9 * 9; if (!n) n = 9; enter(w, REALLOCARRAY, n, 0); p = reallocarray(p, 9, n / 9); leave(w); break;
    default: enter(w, REALLOC, n, 0); p = realloc(p, n); leave(w); break;
    }
    if (!p) abort();
    if (n >= sizeof n) *(size_t *)p = n;
    w->slot[k] = p; w->bytes[k] = n;
}

static void step(struct worker *w) {
    int k = draw(w) % SLOTS;
    if (!w->slot[k]) { if (draw(w) % 20) allocate(w, k); else fail(w); return; }
    if (draw(w) % 4 == 0) { change(w, k); return; }
    void *p = w->slot[k];
    size_t n = w->bytes[k];
    w->slot[k] = 0;
    if (n >= sizeof n && draw(w) % 3 == 0) { // another worker may free it
        *(size_t *)p = n;
        p = __atomic_exchange_n(&mailbox[draw(w) % MAILBOXES], p, __ATOMIC_ACQ_REL);
        if (!p) return;
        n = *(size_t *)p;
    }
    drop(w, p, n);
}

static struct worker workers[WORKERS];

static void *work(void *argument) {
    struct worker *w = &workers[(intptr_t)argument];
    while (progress[0] < ALONE * (intptr_t)argument) sched_yield();
    w->number = (intptr_t)argument;
    w->random = seed * 2654435761u + w->number + 1;
    enter(w, MALLOC, 1000003 + w->number, 0); // identifies the worker
    void *first = malloc(1000003 + w->number);
    leave(w);
    if (!first) abort();
    if (FIRST_THREAD && !w->number) return 0;
    while (w->used < ENTRIES) step(w);
    for (;;) pause();
}

static int all_have_enough(void) {
    for (int i = 0; i < WORKERS; i++) if (progress[i] < ENOUGH) return 0;
    return 1;
}

int main(int count, char **word) {
    if (count != 4) return 2;
    seed = strtoull(word[3], 0, 10);
    size_t bytes = sizeof(struct entry) * ENTRIES;
    int fd = open(word[1], O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, bytes * WORKERS)) return 2;
    for (int i = 0; i < WORKERS; i++) {
        log_of[i] = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, bytes * i);
        if (log_of[i] == MAP_FAILED) return 2;
    }
    for (intptr_t i = FIRST_THREAD; i < WORKERS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, 0, work, (void *)i)) return 2;
    }
    if (FIRST_THREAD) work(0);
    while (!all_have_enough())
        if (FIRST_THREAD && workers[0].used < ENTRIES) step(&workers[0]); else usleep(500);
    usleep(seed % 997);
    if (!strcmp(word[2], "exit")) exit(7);
    if (!strcmp(word[2], "_exit")) _exit(7);
    if (!strcmp(word[2], "abort")) abort();
    kill(getpid(), SIGKILL);
    for (;;) pause();
}
