// Has a known peak of anonymous memory, in the middle of its life, while a file takes more memory later.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static void *touched(size_t bytes, int flags, int file) {
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    if (memory == MAP_FAILED) _exit(3);
    memset(memory, 1, bytes);
    return memory;
}

int main(int count, char **words) {
    // A larger peak of an earlier program and of a child must not count. The kernel often gives the third program the place
    // in its memory that the first one had.
    if (count > 1) {
        int is_first = strcmp(words[1], "first") == 0;
        if (is_first) touched(90 * MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        execl(words[0], words[0], is_first ? "second" : (char *)0, (char *)0);
        return 2;
    }
    if (fork() == 0) {
        touched(70 * MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        _exit(0);
    }
    wait(0);
    char *high = touched(30 * MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    // Freed by a mapping over it.
    mmap(high, 30 * MIB, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    FILE *file = tmpfile();
    if (!file || ftruncate(fileno(file), 60 * MIB)) return 4;
    touched(60 * MIB, MAP_SHARED, fileno(file));
    touched(5 * MIB, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    return 7;
}
