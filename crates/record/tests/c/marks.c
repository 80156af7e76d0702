// Sets marks in the main thread and in a second thread. Behaves the same if it is not recorded.
#include <pthread.h>
#include <stdlib.h>

extern void hksim_mark(const char *name) __attribute__((weak));
static void mark(const char *name) { if (hksim_mark) hksim_mark(name); }

static void *second(void *unused) {
    mark("a first event of its thread");
    return unused;
}

int main(void) {
    pthread_t thread;
    mark("start");
    if (!malloc(11)) return 1;
    mark("a name of more than two times twenty-four bytes: \xc3\xa4");
    if (!malloc(22)) return 1;
    if (pthread_create(&thread, 0, second, 0) || pthread_join(thread, 0)) return 1;
    mark("start");
    mark("");
    mark(0);
    return malloc(33) == 0;
}
