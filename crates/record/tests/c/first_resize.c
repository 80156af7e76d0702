// A thread's first call resizes a block, and the main thread gets the old address before that call has returned. Linked
// with gives_away.
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

enum { BYTES = 104, MOVED_BYTES = 5000 };

extern void *volatile away;
static void *block;
static volatile int runs, goes;

static void *resize(void *unused) {
    runs = 1;
    while (!goes) sched_yield();
    block = realloc(block, MOVED_BYTES);
    return unused;
}

int main(void) {
    pthread_t thread;
    if (pthread_create(&thread, 0, resize, 0)) return 2;
    while (!runs) sched_yield();
    block = malloc(BYTES);
    // These calls reuse an earlier clock reading, as the next call would.
    for (int i = 0; i < 5; i++) if (!malloc(10)) return 2;
    void *old = block;
    goes = 1;
    while (!away) sched_yield();
    void *given = malloc(BYTES);
    pthread_join(thread, 0);
    _exit(given != old);
}
