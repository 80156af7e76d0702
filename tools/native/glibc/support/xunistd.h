#pragma once
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <support/check.h>

static inline pid_t xfork(void) {
  pid_t child = fork();
  if (child < 0) FAIL_EXIT1("fork");
  return child;
}
#define xpipe(ends) do { if (pipe(ends)) FAIL_EXIT1("pipe"); } while (0)
#define xclose(file) do { if (close(file)) FAIL_EXIT1("close"); } while (0)
#define xwaitpid(child, status, options) do { if (waitpid(child, status, options) < 0) FAIL_EXIT1("waitpid"); } while (0)
#define xopen(path, flags, mode) ({ int file = open(path, flags, mode); if (file < 0) FAIL_EXIT1("open"); file; })
