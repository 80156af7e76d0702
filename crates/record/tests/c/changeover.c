// Like handover, but workers begin and end while the main thread (worker 0) continues. At times only the main thread
// makes calls, at other times several threads do. The first call of some workers resizes or frees another worker's
// block.
//
// Usage: changeover LOG WORKERS STEPS SEED. The main thread makes STEPS steps alone between two groups of workers.
#include <sched.h>
#include <sys/stat.h>
#define main handover
#include "handover.c"
#undef main

enum { TOGETHER = 3, WORKER_STEPS = 300 };

static volatile long ended;

static void step(struct worker *w) {
    uint64_t *mine = make(w, size(w));
    if (draw(w) % 4 == 0) mine = resize(w, mine, size(w));
    uint64_t *theirs = __atomic_exchange_n(&box[draw(w) % BOXES], mine, __ATOMIC_ACQ_REL);
    if (theirs && draw(w) % 3 == 0) theirs = resize(w, theirs, size(w));
    if (theirs) drop(w, theirs);
}

static void *come_and_go(void *argument) {
    struct worker *w = argument;
    uint64_t *theirs = 0;
    if (w->number % 3) while (!theirs) theirs = __atomic_exchange_n(&box[draw(w) % BOXES], 0, __ATOMIC_ACQ_REL);
    if (w->number % 3 == 1) theirs = resize(w, theirs, size(w));
    if (theirs) drop(w, theirs);
    drop(w, make(w, 1000003 + w->number)); // identifies the thread
    for (int i = 0; i < WORKER_STEPS; i++) step(w);
    __atomic_add_fetch(&ended, 1, __ATOMIC_ACQ_REL);
    return 0;
}

// A joined thread may still be exiting in the kernel, where it does not count as ended yet.
static void wait_until_alone(void) {
    struct stat tasks;
    do sched_yield();
    while (stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 2 + 1);
}

int main(int count, char **word) {
    if (count != 5) return 2;
    threads = atol(word[2]), steps = atol(word[3]);
    if (threads < 1 || threads > 64 || steps < 1) return 2;
    // The main thread also makes a varying number of steps while workers begin and end.
    size_t bytes = sizeof(struct entry) * ((steps + 4000000 / threads) * (threads / TOGETHER + 2) * (CALLS_A_STEP + 1));
    bytes = (bytes + 4095) / 4096 * 4096;
    int fd = open(word[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, bytes * threads)) return 2;
    char *logs = mmap(0, bytes * threads, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (logs == MAP_FAILED) return 2;
    static struct worker workers[THREADS_MAX];
    for (long i = 0; i < threads; i++) {
        workers[i].number = i;
        workers[i].log = (struct entry *)(logs + bytes * i);
        workers[i].random = (strtoull(word[4], 0, 10) + 1) * 2654435761u + i * 40503u + 1;
    }
    struct worker *own = &workers[0];
    drop(own, make(own, 1000003));
    for (long first = 1; first < threads; first += TOGETHER) {
        for (long i = 0; i < steps; i++) step(own);
        long some = threads - first < TOGETHER ? threads - first : TOGETHER, goal = ended + some;
        for (long i = first; i < first + some; i++)
            if (pthread_create(&workers[i].thread, 0, come_and_go, &workers[i])) return 2;
        while (__atomic_load_n(&ended, __ATOMIC_ACQUIRE) < goal) step(own);
        for (long i = first; i < first + some; i++) pthread_join(workers[i].thread, 0);
    }
    wait_until_alone();
    for (long i = 0; i < steps; i++) step(own);
    _exit(0); // no call after the last log entry
}
