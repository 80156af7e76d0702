// Forks while other threads are inside malloc. Children allocate, free blocks that other threads allocated, and start
// threads.
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 6, SHARED = 512, FORKS = 40 };
static _Atomic(uintptr_t *) shared[SHARED];
static atomic_int stop;

static uint64_t next(uint64_t *state) {
  *state ^= *state << 13, *state ^= *state >> 7, *state ^= *state << 17;
  return *state;
}

// A block whose first word is its size and whose last byte is known.
static uintptr_t *make(uint64_t *state) {
  static const size_t limits[] = {64, 1024, 40000, 400000, 3000000};
  uint64_t r = next(state);
  size_t bytes = 16 + r % limits[r % 1000 < 990 ? r % 2 : 2 + r % 3];
  uintptr_t *block = malloc(bytes);
  if (!block) abort();
  block[0] = bytes;
  ((unsigned char *)block)[bytes - 1] = 0x5A;
  return block;
}

static void end(uintptr_t *block) {
  if (!block) return;
  if (((unsigned char *)block)[block[0] - 1] != 0x5A && block[0] > 16) abort();
  free(block);
}

// Exchanges blocks with all threads, so that most blocks are freed by another thread than the one that allocated them.
static void *churn(void *argument) {
  uint64_t state = (uint64_t)(uintptr_t)argument * 0x9E3779B97F4A7C15u | 1;
  while (!stop) end(atomic_exchange(&shared[next(&state) % SHARED], make(&state)));
  return 0;
}

static void *short_lived(void *argument) {
  for (int i = 0; i < 200; i++) end(make(argument));
  return 0;
}

static void child(uint64_t state) {
  alarm(20);
  for (int i = 0; i < SHARED; i++) end(atomic_exchange(&shared[i], (uintptr_t *)0));
  for (int i = 0; i < 3000; i++) end(atomic_exchange(&shared[next(&state) % SHARED], make(&state)));
  pthread_t thread;
  if (pthread_create(&thread, 0, short_lived, &state) || pthread_join(thread, 0)) abort();
  pid_t grandchild = fork();
  if (grandchild == 0) {
    short_lived(&state);
    _exit(0);
  }
  int status;
  if (waitpid(grandchild, &status, 0) < 0 || status) abort();
  exit(0);
}

int main(void) {
  pthread_t threads[THREADS];
  for (uintptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, churn, (void *)(i + 1));
  for (int i = 0; i < FORKS; i++) {
    pid_t pid = fork();
    if (pid == 0) child(i + 77);
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) < 0) return perror("fork"), 1;
    if (status) return printf("child %d ended with %#x\n", i, status), 1;
  }
  stop = 1;
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
  puts("all children ended well");
}
