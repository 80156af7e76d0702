// Threads that allocate with glibc's malloc, one after the other. Each creates an arena: it maps 128 MiB, and unmaps
// both ends so that 64 MiB on a 64 MiB boundary are left. The first 8 MiB of them are writable from the start, so that
// they can have huge pages.
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 3
#define BLOCKS 300

static sem_t allocated, end;

static void *thread(void *unused) {
    char *kept[BLOCKS];
    for (size_t i = 0; i < BLOCKS; i++) {
        size_t bytes = 1000 + i * 137 % 60000;
        kept[i] = malloc(bytes);
        if (kept[i] == NULL) abort();
        memset(kept[i], 1, bytes);
    }
    for (size_t i = 0; i < BLOCKS; i += 2) free(kept[i]);
    sem_post(&allocated);
    // The arena of a thread that ends goes to the next new thread.
    sem_wait(&end);
    return unused;
}

int main(void) {
    mallopt(M_TOP_PAD, 8 << 20);
    pthread_t ids[THREADS];
    for (int i = 0; i < THREADS; i++) {
        if (pthread_create(&ids[i], NULL, thread, NULL) != 0) abort();
        sem_wait(&allocated);
    }
    for (int i = 0; i < THREADS; i++) {
        sem_post(&end);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
    return 0;
}
