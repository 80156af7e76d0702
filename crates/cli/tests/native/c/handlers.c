// Frequent signals interrupt allocations; handlers allocate while the program is outside malloc; then the program
// execs.
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t ticks, handled;

static void on_tick(int signal) { (void)signal, ticks++; }

static void on_user(int signal) {
  (void)signal;
  for (int i = 0; i < 100; i++) free(memset(malloc(100 + i * 50), 1, 100));
  handled++;
}

static void *churn(void *argument) {
  char *blocks[64] = {0};
  for (int i = 0; i < 600000; i++) {
    free(blocks[i % 64]);
    size_t bytes = 1 + (size_t)i * 37 % 2000;
    blocks[i % 64] = memset(malloc(bytes), i, bytes);
  }
  for (int i = 0; i < 64; i++) free(blocks[i]);
  return argument;
}

int main(int count, char **words) {
  if (count > 1) {
    char *copy = strdup(words[1]);
    return puts(copy), free(copy), 0;
  }
  sigset_t user, old;
  sigemptyset(&user), sigaddset(&user, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &user, &old);
  signal(SIGALRM, on_tick), signal(SIGUSR1, on_user);
  struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
  setitimer(ITIMER_REAL, &often, 0);
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], 0, churn, 0);
  churn(0);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
  setitimer(ITIMER_REAL, &never, 0);
  for (int i = 0; i < 50; i++) kill(getpid(), SIGUSR1), sigdelset(&old, SIGUSR1), sigsuspend(&old);
  printf("interrupted %d, handled %d\n", ticks > 10, handled);
  fflush(stdout);
  execl("/proc/self/exe", words[0], "executed again", (char *)0);
  return 1;
}
