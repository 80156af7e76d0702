// A C++ library that a C program loads.
#include <cstdlib>
#include <new>
extern "C" void *make(std::size_t n) {
    delete[] new long[n];
    return operator new(n); // freed with free: libstdc++'s operators call malloc, and so do the recorder's replacements
}
