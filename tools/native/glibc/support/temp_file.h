#pragma once
#include <stdlib.h>
#include <string.h>
#include <support/check.h>
#include <support/xunistd.h>

static inline int create_temp_file(const char *base, char **name) {
  char path[] = "/tmp/hksim-glibc-XXXXXX";
  int file = mkstemp(path);
  (void)base;
  if (file < 0) FAIL_EXIT1("no temporary file");
  if (name) *name = strdup(path);
  return file;
}
