// Threads pass blocks to each other, and free and resize each other's blocks, so that they quickly reuse each other's
// addresses. Each block has a serial number in its first bytes. A thread that frees or resizes a block logs the number.
// The log is the oracle. It is a shared file mapping with a separate part for each thread.
//
// Usage: handover LOG THREADS STEPS SEED
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BOXES = 4, SIZES = 6, THREADS_MAX = 64, CALLS_A_STEP = 3 };
enum { MADE = 1, RESIZED, RESIZED_AWAY, FREED };

struct entry { uint64_t what, serial, bytes; };
struct worker { pthread_t thread; struct entry *log; uint64_t number, made, used, random; };

static uint64_t *volatile box[BOXES]; // few, so that a block soon has another owner
static long steps, threads;
static pthread_barrier_t ready, done;

static uint64_t draw(struct worker *w) {
    w->random ^= w->random << 13; w->random ^= w->random >> 7; w->random ^= w->random << 17;
    return w->random;
}

static void note(struct worker *w, uint64_t what, uint64_t serial, uint64_t bytes) {
    w->log[w->used++] = (struct entry){ what, serial, bytes };
}

// Only a few sizes, so that the next call of the same size reuses a freed address.
static size_t size(struct worker *w) { return (size_t)32 << draw(w) % SIZES; }

static uint64_t *make(struct worker *w, size_t bytes) {
    void *block = 0;
    switch (draw(w) % 8) {
    default: block = malloc(bytes); break;
    case 0: block = calloc(1, bytes); break;
    case 1: block = realloc(0, bytes); break;
    case 2: if (posix_memalign(&block, 64, bytes)) block = 0; break;
    }
    if (!block) abort();
    uint64_t serial = w->number << 32 | ++w->made;
    *(uint64_t *)block = serial;
    note(w, MADE, serial, bytes);
    return block;
}

// Reads the serial number first, because after the call the block may belong to another thread.
static uint64_t *resize(struct worker *w, uint64_t *block, size_t bytes) {
    uint64_t serial = *block;
    uint64_t *moved = realloc(block, bytes);
    if (!moved && bytes) abort();
    // glibc's realloc(p, 0) frees the block. Other allocators return a block, which the trace shows as a resize to 1
    // byte.
    note(w, moved ? RESIZED : RESIZED_AWAY, serial, moved && !bytes ? 1 : bytes);
    if (moved && !bytes) { note(w, FREED, serial, 0); free(moved); return 0; }
    if (moved && *moved != serial) abort();
    return moved;
}

static void drop(struct worker *w, uint64_t *block) {
    note(w, FREED, *block, 0);
    free(block);
}

static void *work(void *argument) {
    struct worker *w = argument;
    pthread_barrier_wait(&ready);
    drop(w, make(w, 1000003 + w->number)); // identifies the thread
    for (long step = 0; step < steps; step++) {
        uint64_t *mine = make(w, size(w));
        if (draw(w) % 4 == 0) mine = resize(w, mine, size(w));
        uint64_t *theirs = __atomic_exchange_n(&box[draw(w) % BOXES], mine, __ATOMIC_ACQ_REL);
        if (!theirs) continue;
        uint64_t chance = draw(w) % 64;
        if (chance < 24) theirs = resize(w, theirs, chance ? size(w) : 0);
        if (theirs) drop(w, theirs);
    }
    pthread_barrier_wait(&done);
    for (;;) pause(); // the end of a thread would call free
    return 0;
}

int main(int count, char **word) {
    if (count != 5) return 2;
    threads = atol(word[2]), steps = atol(word[3]);
    if (threads < 1 || threads > THREADS_MAX || steps < 1) return 2;
    // Allocate and resize; then either realloc(p, 0), if it frees, or a resize and a free.
    size_t bytes = (sizeof(struct entry) * (steps * (CALLS_A_STEP + 1) + 2) + 4095) / 4096 * 4096;
    int fd = open(word[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, bytes * threads)) return 2;
    char *logs = mmap(0, bytes * threads, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (logs == MAP_FAILED) return 2;
    pthread_barrier_init(&ready, 0, threads + 1);
    pthread_barrier_init(&done, 0, threads + 1);
    static struct worker workers[THREADS_MAX];
    for (long i = 0; i < threads; i++) {
        workers[i].number = i;
        workers[i].log = (struct entry *)(logs + bytes * i);
        workers[i].random = (strtoull(word[4], 0, 10) + 1) * 2654435761u + i * 40503u + 1;
        if (pthread_create(&workers[i].thread, 0, work, &workers[i])) return 2;
    }
    pthread_barrier_wait(&ready);
    pthread_barrier_wait(&done);
    _exit(0); // no call after the last log entry
}
