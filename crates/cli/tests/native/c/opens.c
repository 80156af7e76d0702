// Opens and closes a library repeatedly, and uses it from several threads.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *path;
static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;

static void *use(void *library) {
  const char *(*word)(void) = (const char *(*)(void))dlsym(library, "library_word");
  return strdup(word());
}

int main(int count, char **words) {
  path = count > 1 ? words[1] : "";
  int good = 0;
  for (int round = 0; round < 30; round++) {
    pthread_mutex_lock(&one);
    void *library = dlopen(path, RTLD_NOW | (round % 2 ? RTLD_DEEPBIND : 0));
    pthread_mutex_unlock(&one);
    if (!library) return puts(dlerror()), 1;
    pthread_t threads[8];
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], 0, use, library);
    for (int i = 0; i < 8; i++) {
      void *word;
      pthread_join(threads[i], &word);
      good += !strcmp(word, "constructed");
      free(word);
      // Frees a block that the library allocated.
      char *(*allocate)(void) = (char *(*)(void))dlsym(library, "library_block");
      free(allocate());
    }
    dlclose(library);
  }
  printf("%d good words\n", good);
  void *missing = dlopen("/nonexistent.so", RTLD_NOW);
  printf("%d %d\n", missing != 0, dlerror() != 0);
}
