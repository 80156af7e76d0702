// Forks of forks: each process runs threads that allocate, come and go, and forks meanwhile. Prints how many families
// ended without errors. An alarm ends a process that hangs, and its parent reports that.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FAMILIES = 40, GENERATIONS = 4, THREADS = 4, BLOCKS = 300, SECONDS = 20 };

static volatile int stop;

// A short-lived thread: its heap opens, fills, passes a few blocks to other threads, and closes.
static char *handed_on[64];

static void *brief(void *seed) {
  unsigned state = (unsigned)(size_t)seed;
  char *own[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    size_t bytes = 8 + rand_r(&state) % (i % 16 ? 900 : 90000);
    own[i] = malloc(bytes);
    own[i][0] = own[i][bytes - 1] = (char)i;
  }
  for (int i = 0; i < BLOCKS; i++) {
    char *block = own[i];
    if (i % 8 == 0) block = __atomic_exchange_n(&handed_on[rand_r(&state) % 64], block, __ATOMIC_ACQ_REL);
    free(block);
  }
  return NULL;
}

// Starts short-lived threads one after the other.
static void *busy(void *seed) {
  size_t state = (size_t)seed;
  while (!stop) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, brief, (void *)(state += 977)) == 0) pthread_join(thread, NULL);
  }
  return NULL;
}

static int family(int generation, size_t seed) {
  alarm(SECONDS);
  stop = 0;
  memset(handed_on, 0, sizeof handed_on); // the parent's threads free these blocks
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, busy, (void *)(seed * 31 + i * 7919));
  int failed = 0;
  if (generation < GENERATIONS) {
    usleep(300 + (seed * 37) % 3000);
    pid_t child = fork();
    if (child == 0) _exit(family(generation + 1, seed * 5 + 1));
    int status = 0;
    waitpid(child, &status, 0);
    failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (WIFSIGNALED(status)) fprintf(stderr, "generation %d ended by signal %d\n", generation + 1, WTERMSIG(status));
  } else {
    usleep(2000);
  }
  stop = 1;
  for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  return failed;
}

int main(void) {
  int well = 0;
  for (size_t seed = 1; seed <= FAMILIES; seed++) well += family(1, seed) == 0;
  printf("%d of %d families\n", well, FAMILIES);
  return 0;
}
