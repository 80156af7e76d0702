#pragma once
#include <array_length.h>
#include <support/check.h>

enum { EXIT_UNSUPPORTED = 77, DEFAULT_TIMEOUT = 20 };
#ifndef TIMEOUT
# define TIMEOUT DEFAULT_TIMEOUT
#endif
static int test_verbose __attribute__((unused));
