#pragma once
#include <pthread.h>
#include <signal.h>
#include <support/check.h>

#define HKSIM_DONE(call) do { int why = call; if (why) FAIL_EXIT1("%s: %s", #call, strerror(why)); } while (0)
static inline pthread_t xpthread_create(pthread_attr_t *attributes, void *(*work)(void *), void *argument) {
  pthread_t thread;
  HKSIM_DONE(pthread_create(&thread, attributes, work, argument));
  return thread;
}
static inline void *xpthread_join(pthread_t thread) {
  void *result;
  HKSIM_DONE(pthread_join(thread, &result));
  return result;
}
#define xpthread_attr_init(a) HKSIM_DONE(pthread_attr_init(a))
#define xpthread_attr_destroy(a) HKSIM_DONE(pthread_attr_destroy(a))
#define xpthread_attr_setstacksize(a, n) HKSIM_DONE(pthread_attr_setstacksize(a, n))
#define xpthread_attr_setdetachstate(a, n) HKSIM_DONE(pthread_attr_setdetachstate(a, n))
#define xpthread_barrier_init(b, a, n) HKSIM_DONE(pthread_barrier_init(b, a, n))
#define xpthread_barrier_destroy(b) HKSIM_DONE(pthread_barrier_destroy(b))
#define xpthread_barrier_wait(b) ((void)pthread_barrier_wait(b))
#define xpthread_mutex_lock(m) HKSIM_DONE(pthread_mutex_lock(m))
#define xpthread_mutex_unlock(m) HKSIM_DONE(pthread_mutex_unlock(m))
#define xpthread_detach(t) HKSIM_DONE(pthread_detach(t))
#define xpthread_kill(t, signal) HKSIM_DONE(pthread_kill(t, signal))
