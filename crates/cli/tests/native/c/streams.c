// Forks while threads hold locks of the C library's streams and allocate under them; children allocate, too. If the
// allocator held a lock across a fork, the fork and the stream would wait for each other.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FORKERS = 3, READERS = 5, SECONDS = 2 };
static char path[] = "/tmp/hksim-streams-XXXXXX";
static atomic_int stop;

static void *read_lines(void *unused) {
  FILE *file = fopen(path, "r");
  if (!file) abort();
  while (!stop) {
    char *line = NULL;
    size_t room = 0;
    rewind(file);
    if (getline(&line, &room, file) != 300000) abort();
    free(line);
  }
  fclose(file);
  return unused;
}

static void *flush_all(void *unused) {
  while (!stop) fflush(NULL);
  return unused;
}

static void use_heap(void) {
  char *blocks[200];
  for (int i = 0; i < 200; i++) memset(blocks[i] = malloc(50 + i * i), i, 50 + i * i);
  for (int i = 0; i < 200; i++)
    if (blocks[i][49 + i * i] != (char)i) _exit(2);
    else free(blocks[i]);
}

static void *fork_often(void *unused) {
  while (!stop) {
    pid_t child = fork();
    if (!child) use_heap(), _exit(17);
    int status;
    if (waitpid(child, &status, 0) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 17) puts("a child failed"), exit(1);
  }
  return unused;
}

int main(void) {
  alarm(120);
  int file = mkstemp(path);
  for (int i = 0; i < 3000; i++)
    if (write(file, "a line is as long as that, and it is all of the file: it does not end before the end, which comes last", 100) != 100) abort();
  close(file);
  pthread_t readers[READERS], flusher, forkers[FORKERS];
  for (int i = 0; i < READERS; i++) pthread_create(&readers[i], NULL, read_lines, NULL);
  pthread_create(&flusher, NULL, flush_all, NULL);
  for (int i = 0; i < FORKERS; i++) pthread_create(&forkers[i], NULL, fork_often, NULL);
  sleep(SECONDS);
  stop = 1;
  for (int i = 0; i < FORKERS; i++) pthread_join(forkers[i], NULL);
  for (int i = 0; i < READERS; i++) pthread_join(readers[i], NULL);
  pthread_join(flusher, NULL);
  unlink(path);
  puts("all children ended");
  return 0;
}
