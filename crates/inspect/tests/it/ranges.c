// Makes aligned 2 MiB ranges in random states, and applies remedies to them on request: `ranges SEED NUMBER`.
// Prints `range ADDRESS DESCRIPTION` for each, then `ready`. Requests on standard input, one a line; each ends with `done`:
//   collapse  MADV_COLLAPSE on each range; prints `ADDRESS RESULT`
//   write     writes to the first byte of each range

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif

enum { PAGE = 4096, PAGES = 512, HUGE = PAGE * PAGES, NUMBER_MAX = 512 };

static char *ranges[NUMBER_MAX];
static uint64_t random_state;

static uint64_t below(uint64_t limit) {
    random_state = random_state * 6364136223846793005ul + 1442695040888963407ul;
    return (random_state >> 33) % limit;
}

// Lets userfaultfd watch a range for writes to protected pages, of which there are none: writes go on as before.
static int watch(char *range) {
    int watcher = syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
    struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP};
    if (watcher < 0 || ioctl(watcher, UFFDIO_API, &api)) return 0;
    struct uffdio_register all = {.range = {(uintptr_t)range, HUGE}, .mode = UFFDIO_REGISTER_MODE_WP};
    return ioctl(watcher, UFFDIO_REGISTER, &all) == 0;
}

static void make(int number) {
    static const int steps[] = {0, 1, 2, 63, 255, 256, 257, 400, 511, 512};
    // Between reservations without access, so that its mapping merges with no other.
    char *mapped = mmap(0, 3 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) exit(1);
    char *range = (char *)(((uintptr_t)mapped + 2 * HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    if (mprotect(range, HUGE, PROT_READ | PROT_WRITE)) exit(1);
    ranges[number] = range;
    int written = steps[below(10)], read = below(3) ? 0 : (int)below(PAGES - written + 1);
    // While pages are written one by one, none may become huge.
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    for (int page = 0; page < written; page++) ((volatile char *)range)[page * PAGE] = 1;
    for (int page = written; page < written + read; page++) (void)((volatile char *)range)[page * PAGE];
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    static const struct { const char *name; int advice; } advices[] = {
        {"none", MADV_NORMAL}, {"for", MADV_HUGEPAGE}, {"for", MADV_HUGEPAGE}, {"against", MADV_NOHUGEPAGE}};
    int chosen = below(4);
    if (madvise(range, HUGE, advices[chosen].advice)) exit(2);
    const char *other = "";
    switch (below(8)) {
    case 0:
        if (madvise(range + (1 + below(PAGES - 1)) * PAGE, PAGE, MADV_GUARD_INSTALL) == 0) other = " guard";
        break;
    case 1:
        if (mlock(range, HUGE) == 0) other = " locked";
        break;
    case 2:
        if (mprotect(range + (PAGES / 2) * PAGE, PAGE, PROT_READ) == 0) other = " split";
        break;
    case 3:
        if (written && madvise(range, written * PAGE, MADV_FREE) == 0) other = " lazy";
        break;
    case 4:
        if (watch(range)) other = " watched";
        break;
    }
    printf("range %lx written %d read %d advice %s%s\n", (unsigned long)range, written, read, advices[chosen].name, other);
}

// The kernel asks to try again if a page is in use elsewhere for a moment, such as in a processor's batch.
static int collapse(char *range) {
    for (int tries = 0; tries < 100; tries++) {
        if (madvise(range, HUGE, MADV_COLLAPSE) == 0) return 0;
        if (errno != EAGAIN && errno != EBUSY) break;
        usleep(1000);
    }
    return errno;
}

static void request(const char *word, int number) {
    for (int at = 0; at < number; at++) {
        if (!strcmp(word, "collapse")) printf("%lx %d\n", (unsigned long)ranges[at], collapse(ranges[at]));
        if (!strcmp(word, "write")) *(volatile char *)ranges[at] = 1;
    }
}

int main(int count, char **words) {
    if (count != 3) return 1;
    random_state = strtoull(words[1], 0, 10);
    int number = atoi(words[2]);
    if (number > NUMBER_MAX) return 1;
    for (int at = 0; at < number; at++) make(at);
    // Pages given up count late, until something lets every processor count them.
    char *spare = mmap(0, 2 * HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *spare = 1;
    madvise(spare, 2 * HUGE, MADV_COLLAPSE);
    munmap(spare, 2 * HUGE);
    puts("ready");
    fflush(stdout);
    char word[64];
    while (scanf("%63s", word) == 1) {
        request(word, number);
        puts("done");
        fflush(stdout);
    }
    return 0;
}
