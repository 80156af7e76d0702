#include <support/test-driver.h>
#include <unistd.h>

#ifndef TEST_FUNCTION
# define TEST_FUNCTION do_test
#endif
#define HKSIM_RUN_2(function) function()
#define HKSIM_RUN(function) HKSIM_RUN_2(function)

int main(int argc, char **argv) {
  (void)argc, (void)argv;
  alarm(5 * TIMEOUT);
#ifdef TEST_FUNCTION_ARGV
  int status = TEST_FUNCTION_ARGV(argc, argv);
#else
  int status = HKSIM_RUN(TEST_FUNCTION);
#endif
  return status ? status : hksim_failures != 0;
}
