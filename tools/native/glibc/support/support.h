#pragma once
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <support/check.h>

static inline void *hksim_given(void *block) { return block ? block : (FAIL_EXIT1("no memory"), NULL); }
#define xmalloc(bytes) hksim_given(malloc(bytes))
#define xcalloc(count, bytes) hksim_given(calloc(count, bytes))
#define xrealloc(old, bytes) hksim_given(realloc(old, bytes))
#define xstrdup(text) ((char *)hksim_given(strdup(text)))
#define xposix_memalign(align, bytes) hksim_given(aligned_alloc(align, bytes))
#define write_message(text) ((void)!write(2, text, strlen(text)))
