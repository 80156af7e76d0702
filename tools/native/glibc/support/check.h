// A replacement for the test support that glibc's malloc tests use: enough to compile them unmodified.
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int hksim_failures __attribute__((unused));

#define HKSIM_FAIL(...) (printf("%s:%d: ", __FILE__, __LINE__), printf(__VA_ARGS__), putchar('\n'), hksim_failures++)
#define FAIL(...) HKSIM_FAIL(__VA_ARGS__)
#define FAIL_RET(...) return (HKSIM_FAIL(__VA_ARGS__), 1)
#define FAIL_EXIT1(...) (HKSIM_FAIL(__VA_ARGS__), exit(1))
#define FAIL_EXIT(status, ...) (HKSIM_FAIL(__VA_ARGS__), exit(status))
#define FAIL_UNSUPPORTED(...) (printf(__VA_ARGS__), exit(77))
#define TEST_VERIFY(what) ((what) ? (void)0 : (void)HKSIM_FAIL("%s", #what))
#define TEST_VERIFY_EXIT(what) ((what) ? (void)0 : (void)FAIL_EXIT1("%s", #what))
#define TEST_COMPARE(a, b) ((a) == (b) ? (void)0 : (void)HKSIM_FAIL("%s is not %s", #a, #b))
#define TEST_COMPARE_BLOB(a, a_bytes, b, b_bytes) TEST_VERIFY((a_bytes) == (b_bytes) && !memcmp(a, b, a_bytes))
#define TEST_COMPARE_STRING(a, b) TEST_VERIFY(!strcmp(a, b))
