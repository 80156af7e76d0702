#pragma once
#include <stdlib.h>
#include <string.h>
#include <support/check.h>
#include <support/xunistd.h>
#include <unistd.h>

// Removed when the process that created it ends, not when its children end.
static struct { char path[32]; pid_t owner; } temp_file;

static void remove_temp_file(void) {
  if (temp_file.owner == getpid()) unlink(temp_file.path);
}

static inline int create_temp_file(const char *base, char **name) {
  (void)base;
  strcpy(temp_file.path, "/tmp/hksim-glibc-XXXXXX");
  int file = mkstemp(temp_file.path);
  if (file < 0) FAIL_EXIT1("no temporary file");
  temp_file.owner = getpid();
  atexit(remove_temp_file);
  if (name) *name = strdup(temp_file.path);
  return file;
}
