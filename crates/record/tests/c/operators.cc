// Calls every operator new and delete 10 times, with distinct sizes, and frees everything; then, unless an argument is
// given, calls three that throw. Usage: operators [WORD]
#include <cstdlib>
#include <new>
#include <cstdint>

struct alignas(64) Wide { char bytes[640]; };
static int thrown;
static void give_up() { thrown++; throw std::bad_alloc(); }
static void *volatile sink;

int main(int count, char **) {
    std::set_new_handler(give_up);
    for (int i = 0; i < 10; i++) {
        void *p;
        sink = p = operator new(1001); operator delete(p);
        sink = p = operator new(1002); operator delete(p, std::size_t(1002));
        sink = p = operator new[](1003); operator delete[](p);
        sink = p = operator new[](1004); operator delete[](p, std::size_t(1004));
        sink = p = operator new(1005, std::nothrow); operator delete(p, std::nothrow);
        sink = p = operator new[](1006, std::nothrow); operator delete[](p, std::nothrow);
        std::align_val_t wide = std::align_val_t(64);
        sink = p = operator new(1088, wide); operator delete(p, wide);
        if ((uintptr_t)sink % 64) return 3;
        sink = p = operator new(1152, wide); operator delete(p, std::size_t(1152), wide);
        sink = p = operator new[](1216, wide); operator delete[](p, wide);
        sink = p = operator new[](1280, wide); operator delete[](p, std::size_t(1280), wide);
        sink = p = operator new(1344, wide, std::nothrow); operator delete(p, wide, std::nothrow);
        sink = p = operator new[](1408, wide, std::nothrow); operator delete[](p, wide, std::nothrow);
        Wide *w = new Wide; sink = w; delete w;
    }
    if (count > 1) return 0;
    for (int i = 0; i < 3; i++)
        try { sink = operator new(std::size_t(1) << 62); return 1; } catch (const std::bad_alloc &) { }
    return thrown == 3 ? 0 : 2;
}
