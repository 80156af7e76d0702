// Runs the given number of threads at the same time, each with the given number of blocks of 100 bytes. Prints VmRSS in
// KiB while all of them are live.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_barrier_t barrier;
static int blocks;

static void *work(void *nothing) {
  for (int i = 0; i < blocks; i++) memset(malloc(100), 1, 100);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  return nothing;
}

static long resident(void) {
  char line[256];
  long kib = -1;
  FILE *status = fopen("/proc/self/status", "r");
  while (status && fgets(line, sizeof line, status)) sscanf(line, "VmRSS: %ld", &kib);
  return kib;
}

int main(int argc, char **argv) {
  int threads = atoi(argv[1]);
  blocks = atoi(argv[2]);
  pthread_barrier_init(&barrier, NULL, threads + 1);
  pthread_attr_t small;
  pthread_attr_init(&small), pthread_attr_setstacksize(&small, 64 << 10);
  for (int i = 0; i < threads; i++) {
    pthread_t thread;
    if (pthread_create(&thread, &small, work, NULL)) exit(3);
  }
  pthread_barrier_wait(&barrier);
  printf("%ld\n", resident());
  exit(0);
}
