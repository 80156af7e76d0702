// Writes memory, gives a part of it up, and lets children write memory, one after another: memory_limit_validations.rs
// knows what is right.
// Arguments: pages written; pages of those that MADV_FREE gives up; pages written elsewhere after it; children; pages that
// each of them writes.
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul

static char *mapped(size_t pages) {
    char *at = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    // A call that fails at the limit ends the program.
    if (at == MAP_FAILED) _exit(9);
    return at;
}

static void fill(char *at, size_t pages) {
    for (size_t page = 0; page < pages; page++) ((volatile char *)at)[page * PAGE] = 1;
}

int main(int argc, char **argv) {
    unsigned long count[5] = {0};
    for (int index = 0; index < 5 && index + 1 < argc; index++) count[index] = strtoul(argv[index + 1], 0, 10);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    char *at = mapped(count[0] + 1);
    fill(at, count[0]);
    if (count[1]) madvise(at, count[1] * PAGE, MADV_FREE);
    fill(mapped(count[2] + 1), count[2]);
    for (unsigned long child = 0; child < count[3]; child++) {
        int status = 0, pid = fork();
        if (pid < 0) _exit(9);
        if (pid == 0) {
            fill(mapped(count[4] + 1), count[4]);
            _exit(0);
        }
        if (waitpid(pid, &status, 0) != pid || status) _exit(9);
    }
    return 0;
}
