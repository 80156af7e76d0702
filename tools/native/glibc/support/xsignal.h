#pragma once
#include <signal.h>
#include <support/check.h>

#define xsigaction(signal, new, old) do { if (sigaction(signal, new, old)) FAIL_EXIT1("sigaction"); } while (0)
