// Runs many threads at the same time. Each allocates a block, which another thread frees. Prints the number of threads.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int count;
static pthread_barrier_t barrier;
static unsigned char **blocks;

static size_t size_of(int i) { return 16 + i % 3000; }

static void *work(void *number) {
  int i = (int)(size_t)number, next = (i + 1) % count;
  if (!(blocks[i] = calloc(1, size_of(i)))) puts("refused"), _exit(1);
  for (size_t at = 0; at < size_of(i); at++)
    if (blocks[i][at]) puts("not zeroed"), _exit(1);
  memset(blocks[i], i % 251, size_of(i));
  pthread_barrier_wait(&barrier);
  // Resize and free the neighbour's block.
  unsigned char *other = realloc(blocks[next], size_of(next) + 500);
  if (!other) puts("refused"), _exit(1);
  for (size_t at = 0; at < size_of(next); at++)
    if (other[at] != next % 251) puts("changed"), _exit(1);
  free(other);
  pthread_barrier_wait(&barrier);
  free(malloc(100));
  return NULL;
}

int main(int argc, char **argv) {
  count = argc > 1 ? atoi(argv[1]) : 100;
  blocks = calloc(count, sizeof *blocks);
  pthread_t *threads = calloc(count, sizeof *threads);
  pthread_barrier_init(&barrier, NULL, count);
  pthread_attr_t small;
  pthread_attr_init(&small), pthread_attr_setstacksize(&small, 64 << 10);
  for (int i = 0; i < count; i++)
    if (pthread_create(&threads[i], &small, work, (void *)(size_t)i)) printf("only %d threads can be created\n", i), _exit(3);
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
  printf("%d threads\n", count);
  return 0;
}
