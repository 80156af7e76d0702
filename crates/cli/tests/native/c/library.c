// A shared object that is opened while the program runs. It has thread-local storage, a constructor and destructors of
// threads.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static __thread char local[5000] = "local";
static char *made;
static pthread_key_t key;

static void at_thread_exit(void *block) {
  // Allocates after the thread's heap may have been closed.
  free(block), free(memset(malloc(777), 1, 777));
}

__attribute__((constructor)) static void begin(void) {
  made = strdup("constructed");
  pthread_key_create(&key, at_thread_exit);
}

__attribute__((destructor)) static void end(void) { free(made); }

char *library_block(void) { return memset(malloc(100), 1, 100); }

const char *library_word(void) {
  pthread_setspecific(key, strdup(local));
  return strcmp(local, "local") ? "wrong" : made;
}
