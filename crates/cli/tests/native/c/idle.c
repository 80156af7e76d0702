// Threads that free NULL, query the size of a block and touch it, and are still running when the process ends.
#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>

enum { THREADS = 20 };
static pthread_barrier_t ready;
static char *block;

static void *idle(void *nothing) {
  free(nothing);
  block[malloc_usable_size(block) - 1] = 1;
  pthread_barrier_wait(&ready);
  for (;;) pthread_barrier_wait(&ready);
}

int main(void) {
  block = malloc(100);
  pthread_barrier_init(&ready, NULL, THREADS + 1);
  for (int i = 0; i < THREADS; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, idle, NULL)) abort();
  }
  pthread_barrier_wait(&ready);
  exit(0);
}
