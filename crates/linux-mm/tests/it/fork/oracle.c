/* Executes page operations in a process and its child on the running kernel, and prints the state of both.
 *
 * Input lines: `fork`; `exit` (of the child); `p OP` or `c OP`, an operation of a page-op script that the parent or the
 * child executes; `end`, which ends a script and its child. The first output line is `ready` or `skipped: REASON`. Each
 * input line except `end` gets one output line: `RET ERRNO MINFLT` of the executing process, then
 * ` | RSS_KB MAPPINGS [STATE COUNT]...` for the parent and, if it exists, for the child.
 * One operation runs at a time. Measured code uses system calls only, because stdio would cause extra faults. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096ul
#define PAGES 4096ul
#define ARENA ((char *)0x100000000000ul)
#define WARM ((char *)0x300000000000ul)

struct scan_region { uint64_t start, end, categories; };
struct scan_arg {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, anyof, returned;
};
#define SCAN _IOWR('f', 16, struct scan_arg)
struct result { long ret, error, faults; };

static char *base, text[1 << 20], alt_stack[65536], line[256];
static struct scan_region regions[PAGES];
static uint64_t frames[PAGES], flags[PAGES];
static char states[PAGES];
static int kpageflags, zero_fd, to_child[2], from_child[2];
static pid_t child;
static sigjmp_buf escape;
static volatile unsigned long at, failed;

static void on_signal(int number) { (void)number; siglongjmp(escape, 1); }

static long minflt(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

/* Keeps the processor from looking up the next pages before this access is complete: see flush_tlb. */
static void complete(void) {
#ifdef __x86_64__
    __asm__ volatile("lfence" ::: "memory");
#endif
}

static void touch(char kind, unsigned long first, unsigned long length, unsigned long stride) {
    failed = 0;
    at = 0;
    if (sigsetjmp(escape, 0)) {
        failed++;
        at += stride;
    }
    for (; at < length; at += stride) {
        volatile char *page = base + (first + at) * PAGE;
        if (kind == 'r') (void)*page;
        else if (kind == 'k') failed += read(zero_fd, (void *)page, 1) != 1;
        else *page = kind == 'w';
        complete();
    }
}

static int protection(char letter) {
    return letter == 'w' ? PROT_READ | PROT_WRITE : letter == 'r' ? PROT_READ : PROT_NONE;
}

static int advice(const char *name) {
    static const struct { const char *name; int number; } known[] = {{"HUGEPAGE", 14}, {"NOHUGEPAGE", 15},
        {"DONTNEED", 4}, {"FREE", 8}, {"COLD", 20}, {"POPULATE_READ", 22}, {"POPULATE_WRITE", 23}, {"COLLAPSE", 25},
        {"DONTFORK", 10}, {"DOFORK", 11}, {"WIPEONFORK", 18}, {"KEEPONFORK", 19}, {"GUARD_INSTALL", 102},
        {"GUARD_REMOVE", 103}};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name)) return known[i].number;
    exit(8);
}

/* Where a hypervisor backs the machine with small pages, a huge page has many TLB entries, and those that are outdated
 * when it becomes writable again would cost one fault each. Unmapping more than 33 pages flushes all. */
static void flush_tlb(void) {
    void *pages = mmap(0, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (pages != MAP_FAILED) munmap(pages, 64 * PAGE);
}

static struct result execute(const char *op) {
    char name[32], word[32] = "";
    unsigned long a = 0, b = 0, c = 0, d = 0;
    char letter = 0;
    struct result result = {0, 0, 0};
    sscanf(op, "%31s", name);
    if (!strcmp(name, "map")) sscanf(op, "map %lu %lu %c %31s", &a, &b, &letter, word);
    else if (!strcmp(name, "prot")) sscanf(op, "prot %lu %lu %c", &a, &b, &letter);
    else if (!strcmp(name, "adv")) sscanf(op, "adv %31s %lu %lu", word, &a, &b);
    else sscanf(op, "%*s %lu %lu %lu %lu", &a, &b, &c, &d);
    int number = !strcmp(name, "adv") ? advice(word) : 0;
    int set = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | (strchr(word, 'N') ? MAP_NORESERVE : 0)
        | (strchr(word, 'p') ? MAP_POPULATE : 0) | (strchr(word, 'H') ? MAP_HUGETLB : 0);
    char *start = base + a * PAGE;
    flush_tlb();
    long before = minflt();
    errno = 0;
    if (!strcmp(name, "map"))
        result.ret = mmap(start, b * PAGE, protection(letter), set, -1, 0) == MAP_FAILED ? -1 : 0;
    else if (!strcmp(name, "unmap")) result.ret = munmap(start, b * PAGE);
    else if (!strcmp(name, "prot")) result.ret = mprotect(start, b * PAGE, protection(letter));
    else if (!strcmp(name, "adv")) result.ret = madvise(start, b * PAGE, number);
    else if (!strcmp(name, "remap")) result.ret = mremap(start, b * PAGE, b * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED
        | (d ? MREMAP_DONTUNMAP : 0), base + c * PAGE) == MAP_FAILED ? -1 : 0;
    else if (!name[1] && strchr("rwzk", name[0])) touch(name[0], a, b, c);
    else exit(9);
    result.error = result.ret == -1 ? errno : 0;
    result.faults = minflt() - before;
    if (!name[1]) result.ret = failed;
    return result;
}

/* Executes every path once, far from the arena, so that code, stack and data are present before measuring starts. */
static void warm_up(void) {
    static const char *const ops[] = {"w 0 8 1", "r 0 8 1", "k 0 8 1", "prot 1 1 r", "w 1 1 1", "k 1 1 1", "unmap 4 1",
        "map 4 1 w N", "adv FREE 0 8", "remap 0 2 8 0", "adv DONTNEED 0 16", "adv COLD 0 16"};
    base = WARM;
    memset(alt_stack, 1, sizeof alt_stack);
    memset(line, 1, sizeof line);
    for (unsigned i = 0; i < sizeof ops / sizeof *ops; i++) execute(ops[i]);
    base = ARENA;
}

static void serve(void) {
    warm_up();
    struct result ready = {0, 0, 0};
    if (write(from_child[1], &ready, sizeof ready) != sizeof ready) _exit(1);
    while (read(to_child[0], line, sizeof line) == sizeof line) {
        struct result result = execute(line);
        if (write(from_child[1], &result, sizeof result) != sizeof result) _exit(1);
    }
    _exit(0);
}

static struct result answer(void) {
    struct result result;
    if (read(from_child[0], &result, sizeof result) != sizeof result) exit(3);
    return result;
}

static struct result start_child(void) {
    if (pipe(to_child) || pipe(from_child)) exit(4);
    child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(to_child[1]);
        close(from_child[0]);
        serve();
    }
    close(to_child[0]);
    close(from_child[1]);
    struct result result = answer();
    warm_up();
    return result;
}

static void stop_child(void) {
    if (!child) return;
    close(to_child[1]);
    waitpid(child, NULL, 0);
    close(from_child[0]);
    child = 0;
}

static char state_of(uint64_t categories, uint64_t frame_flags) {
    if (categories & 32) return categories & 64 ? 'Z' : 'z';
    if (frame_flags >> 17 & 1) return 'H';
    if (categories & 64) return 'T';
    return frame_flags >> 15 & 3 ? 'm' : 'b';
}

static void report(pid_t pid) {
    char path[64];
    sprintf(path, "/proc/%d/pagemap", pid);
    int pagemap = open(path, O_RDONLY);
    struct scan_arg arg = {.size = sizeof arg, .start = (uint64_t)ARENA, .end = (uint64_t)(ARENA + PAGES * PAGE),
        .vec = (uint64_t)regions, .vec_len = PAGES, .mask = 8, .returned = 8 | 32 | 64};
    long count = ioctl(pagemap, SCAN, &arg);
    if (count < 0) exit(7);
    memset(states, '-', sizeof states);
    for (long i = 0; i < count; i++) {
        unsigned long first = (regions[i].start - (uint64_t)ARENA) / PAGE;
        unsigned long pages = (regions[i].end - regions[i].start) / PAGE;
        if (pread(pagemap, frames, pages * 8, ((uint64_t)ARENA / PAGE + first) * 8) != (long)pages * 8) exit(5);
        for (unsigned long page = 0; page < pages; page++) {
            flags[page] = 0;
            if (!(regions[i].categories & 32)
                && pread(kpageflags, flags + page, 8, (frames[page] & ((1ul << 55) - 1)) * 8) != 8) exit(6);
            states[first + page] = state_of(regions[i].categories, flags[page]);
        }
    }
    close(pagemap);
    long rss = 0;
    sprintf(path, "/proc/%d/smaps", pid);
    int smaps = open(path, O_RDONLY);
    size_t length = 0;
    ssize_t n;
    while ((n = read(smaps, text + length, sizeof text - 1 - length)) > 0) length += n;
    close(smaps);
    text[length] = 0;
    int inside = 0, mappings = 0;
    for (char *from = text; *from; from = strchr(from, '\n') + 1) {
        char *end;
        unsigned long address = strtoul(from, &end, 16);
        if (*end == '-') {
            inside = address >= (unsigned long)ARENA && address < (unsigned long)(ARENA + PAGES * PAGE);
            mappings += inside;
        }
        else if (inside && !strncmp(from, "Rss:", 4)) rss += atol(from + 4);
    }
    printf(" | %ld %d", rss, mappings);
    for (unsigned long page = 0; page < PAGES;) {
        unsigned long end = page;
        while (end < PAGES && states[end] == states[page]) end++;
        printf(" %c %lu", states[page], end - page);
        page = end;
    }
}

static void start_script(void) {
    stop_child();
    munmap(ARENA, PAGES * PAGE);
    if (mmap(ARENA, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != ARENA
        && mmap(ARENA, PAGES * PAGE, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != ARENA) exit(11);
}

int main(void) {
    static char input[1 << 16];
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(sched_getcpu(), &cpu);
    sched_setaffinity(0, sizeof cpu, &cpu);
    setvbuf(stdin, input, _IOFBF, sizeof input);
    kpageflags = open("/proc/kpageflags", O_RDONLY);
    zero_fd = open("/dev/zero", O_RDONLY);
    if (kpageflags < 0 || zero_fd < 0) {
        printf("skipped: /proc/kpageflags: %s\n", strerror(errno));
        return 0;
    }
    struct scan_arg nothing = {.size = sizeof nothing, .mask = 8};
    int self = open("/proc/self/pagemap", O_RDONLY);
    if (ioctl(self, SCAN, &nothing) < 0) {
        printf("skipped: PAGEMAP_SCAN: %s\n", strerror(errno));
        return 0;
    }
    stack_t stack = {.ss_sp = alt_stack, .ss_size = sizeof alt_stack};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    mmap(WARM, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    printf("ready\n");
    start_script();
    warm_up();
    while (fgets(line, sizeof line, stdin)) {
        struct result result = {0, 0, 0};
        if (!strncmp(line, "end", 3)) {
            start_script();
            continue;
        }
        if (!strncmp(line, "fork", 4)) result = start_child();
        else if (!strncmp(line, "exit", 4)) stop_child();
        else if (line[0] == 'c') {
            memmove(line, line + 2, sizeof line - 2);
            if (write(to_child[1], line, sizeof line) != sizeof line) exit(3);
            result = answer();
        } else result = execute(line + 2);
        printf("%ld %ld %ld", result.ret, result.error, result.faults);
        report(getpid());
        if (child) report(child);
        printf("\n");
    }
    return 0;
}
