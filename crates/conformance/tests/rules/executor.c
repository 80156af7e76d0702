/* Executes page-op scripts on the running kernel, and prints the kernel's view of the arena after every operation.
 *
 * Input: scripts with one operation per line, each ended by `end`.
 * Output, after every operation:
 *   op RET ERRNO MINFLT TRAPS                        the result and the cost of the call
 *   st RSS HUGE LAZY VMAS PTE SPLITS [STATE COUNT]...   kB, kB, kB, count, kB, count, runs of page states
 * and after every script: `end COLLAPSED`, the pages that khugepaged collapsed during the script.
 * Two other commands: `fill N` creates mappings elsewhere until max_map_count permits exactly N more (no output), and
 * `aligned PAGES` prints `aligned COUNT`: how many of 20 mmaps of that length without a hint start on a 2 MiB boundary.
 * The first output line is `ready` or `skipped: REASON`. All data below is static and touched beforehand, so that the
 * process causes no faults of its own while it measures. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
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
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_COLD
#define MADV_COLD 20
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define PAGE 4096ul
#define ARENA_PAGES 4096ul
/* Nothing else is mapped in the arena's 512 GiB, so the upper page tables there map only the arena. */
#define ARENA ((char *)0x100000000000ul)
/* Above the arena, so that smaps lists the fillers later. */
#define FILLER ((char *)0x200000000000ul)

struct scan_region { uint64_t start, end, categories; };
struct scan_arg {
    uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
    uint64_t inverted, mask, anyof, returned;
};
#define SCAN _IOWR('f', 16, struct scan_arg)
#define IS_PRESENT 8u
#define IS_ZERO 32u
#define IS_HUGE 64u
#define FLAG_HEAD 15
#define FLAG_TAIL 16
#define FLAG_HUGETLB 17

static char input_buffer[1 << 16], text[1 << 23], out[1 << 22], line[256];
static size_t out_len;
static struct scan_region regions[ARENA_PAGES];
static uint64_t frames[ARENA_PAGES], flags[ARENA_PAGES];
static char states[ARENA_PAGES];
static char alt_stack[65536];
static int pagemap_fd, kpageflags_fd, smaps_fd, maps_fd, status_fd, vmstat_fd, collapsed_fd, perf_fd, zero_fd;
static char *spare;
static long pte_before, splits_before;
static sigjmp_buf escape;

static void on_signal(int number) { (void)number; siglongjmp(escape, 1); }

static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
#include <stdarg.h>
static void put(const char *format, ...) {
    va_list args;
    va_start(args, format);
    out_len += vsnprintf(out + out_len, sizeof out - out_len, format, args);
    va_end(args);
}

static void flush(void) {
    size_t done = 0;
    while (done < out_len) {
        ssize_t n = write(1, out + done, out_len - done);
        if (n <= 0) exit(3);
        done += n;
    }
    out_len = 0;
}

static void skip(const char *what) {
    printf("skipped: %s: %s\n", what, strerror(errno));
    exit(0);
}

/* Reads a whole /proc file into `text`. */
static void slurp(int fd) {
    size_t length = 0;
    ssize_t n;
    while ((n = pread(fd, text + length, sizeof text - 1 - length, length)) > 0) length += n;
    text[length] = 0;
}

static long field(int fd, const char *name) {
    slurp(fd);
    const char *at = strstr(text, name);
    return at ? atol(at + strlen(name)) : 0;
}

static long minflt(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static long traps(void) {
    uint64_t count = 0;
    if (read(perf_fd, &count, sizeof count) != sizeof count) exit(4);
    return count;
}

/* The kernel marks lazily freed pages in per-CPU batches; any MADV_FREE on this CPU flushes the batch. */
static void drain(void) {
    if (!madvise(spare, PAGE, MADV_FREE)) return;
    /* A script has locked the spare page. */
    munlock(spare, PAGE);
    madvise(spare, PAGE, MADV_FREE);
}

struct totals { long rss, huge, lazy, vmas; };

static struct totals read_smaps(void) {
    struct totals sum = {0, 0, 0, 0};
    int inside = 0;
    slurp(smaps_fd);
    for (char *at = text; *at;) {
        char *end;
        unsigned long address = strtoul(at, &end, 16);
        if (*end == '-') {
            if (address >= (unsigned long)(ARENA + ARENA_PAGES * PAGE)) break;
            inside = address >= (unsigned long)ARENA;
            sum.vmas += inside;
        } else if (inside && !strncmp(at, "Rss:", 4)) sum.rss += atol(at + 4);
        else if (inside && !strncmp(at, "AnonHugePages:", 14)) sum.huge += atol(at + 14);
        else if (inside && !strncmp(at, "LazyFree:", 9)) sum.lazy += atol(at + 9);
        at = strchr(at, '\n');
        if (!at++) break;
    }
    return sum;
}

/* Reads the frame flags of a run of present pages. */
static void read_flags(unsigned long first, unsigned long count) {
    off_t at = ((unsigned long)ARENA / PAGE + first) * 8;
    if (pread(pagemap_fd, frames + first, count * 8, at) != (ssize_t)(count * 8)) exit(5);
    for (unsigned long i = first; i < first + count;) {
        uint64_t frame = frames[i] & ((1ul << 55) - 1);
        unsigned long n = 1;
        while (i + n < first + count && (frames[i + n] & ((1ul << 55) - 1)) == frame + n) n++;
        if (pread(kpageflags_fd, flags + i, n * 8, frame * 8) != (ssize_t)(n * 8)) exit(6);
        i += n;
    }
}

static char state_of(uint64_t categories, uint64_t frame_flags) {
    if (categories & IS_ZERO) return categories & IS_HUGE ? 'Z' : 'z';
    if (frame_flags >> FLAG_HUGETLB & 1) return 'H';
    if (categories & IS_HUGE) return 'T';
    return frame_flags >> FLAG_HEAD & 3 ? 'm' : 'b';
}

static void read_states(void) {
    struct scan_arg arg = {.size = sizeof arg, .start = (uint64_t)ARENA, .end = (uint64_t)(ARENA + ARENA_PAGES * PAGE),
        .vec = (uint64_t)regions, .vec_len = ARENA_PAGES, .mask = IS_PRESENT,
        .returned = IS_PRESENT | IS_ZERO | IS_HUGE};
    long count = ioctl(pagemap_fd, SCAN, &arg);
    if (count < 0) exit(7);
    memset(states, '-', sizeof states);
    for (long i = 0; i < count; i++) {
        unsigned long first = (regions[i].start - (uint64_t)ARENA) / PAGE;
        unsigned long pages = (regions[i].end - regions[i].start) / PAGE;
        if (!(regions[i].categories & IS_ZERO)) read_flags(first, pages);
        for (unsigned long page = first; page < first + pages; page++)
            states[page] = state_of(regions[i].categories, flags[page]);
    }
}

static void report_state(void) {
    drain();
    struct totals sum = read_smaps();
    long pte = field(status_fd, "VmPTE:") - pte_before;
    long splits = field(vmstat_fd, "thp_split_pmd ") - splits_before;
    read_states();
    put("st %ld %ld %ld %ld %ld %ld", sum.rss, sum.huge, sum.lazy, sum.vmas, pte, splits);
    for (unsigned long page = 0; page < ARENA_PAGES;) {
        unsigned long end = page;
        while (end < ARENA_PAGES && states[end] == states[page]) end++;
        put(" %c %lu", states[page], end - page);
        page = end;
    }
    put("\n");
}

static volatile unsigned long touch_at, touch_failed;

static void touch(char kind, unsigned long first, unsigned long length, unsigned long stride) {
    touch_failed = 0;
    touch_at = 0;
    if (sigsetjmp(escape, 0)) {
        touch_failed++;
        touch_at += stride;
    }
    for (; touch_at < length; touch_at += stride) {
        volatile char *page = ARENA + (first + touch_at) * PAGE;
        switch (kind) {
        case 'r': (void)*page; break;
        case 'w': *page = 1; break;
        case 'z': *page = 0; break;
        case 'k': if (read(zero_fd, (void *)page, 1) != 1) touch_failed++; break;
        }
    }
}

static int protection(const char *letters) {
    return (strchr(letters, 'w') ? PROT_READ | PROT_WRITE : 0) | (strchr(letters, 'r') ? PROT_READ : 0)
        | (strchr(letters, 'o') ? PROT_WRITE : 0) | (strchr(letters, 'x') ? PROT_EXEC : 0);
}

static int advice(const char *name) {
    static const struct { const char *name; int number; } known[] = {{"HUGEPAGE", MADV_HUGEPAGE},
        {"NOHUGEPAGE", MADV_NOHUGEPAGE}, {"DONTNEED", MADV_DONTNEED}, {"FREE", MADV_FREE}, {"COLD", MADV_COLD},
        {"POPULATE_READ", MADV_POPULATE_READ}, {"POPULATE_WRITE", MADV_POPULATE_WRITE}, {"COLLAPSE", MADV_COLLAPSE},
        {"DONTNEED_LOCKED", MADV_DONTNEED_LOCKED}, {"WILLNEED", MADV_WILLNEED}, {"NORMAL", MADV_NORMAL},
        {"RANDOM", MADV_RANDOM}, {"SEQUENTIAL", MADV_SEQUENTIAL}, {"DONTFORK", MADV_DONTFORK},
        {"DOFORK", MADV_DOFORK}, {"WIPEONFORK", MADV_WIPEONFORK}, {"KEEPONFORK", MADV_KEEPONFORK},
        {"DONTDUMP", MADV_DONTDUMP}, {"DODUMP", MADV_DODUMP}, {"MERGEABLE", MADV_MERGEABLE},
        {"UNMERGEABLE", MADV_UNMERGEABLE}, {"GUARD_INSTALL", 102}, {"GUARD_REMOVE", 103}};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name)) return known[i].number;
    exit(8);
}

static int mapping_flags(const char *letters) {
    int set = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (strchr(letters, 'p')) set |= MAP_POPULATE;
    if (strchr(letters, 'N')) set |= MAP_NORESERVE;
    if (strchr(letters, 'H')) set |= MAP_HUGETLB;
    if (strchr(letters, 'S')) set |= MAP_STACK;
    return set;
}

static int lock_flags(const char *letters) {
    return (strchr(letters, 'c') ? MCL_CURRENT : 0) | (strchr(letters, 'f') ? MCL_FUTURE : 0)
        | (strchr(letters, 'o') ? MCL_ONFAULT : 0);
}

#define AT(page) (ARENA + (page) * PAGE)

static void execute(void) {
    char name[32], word[32], prot[8] = "";
    unsigned long a, b, c, d;
    long ret = 0, faults, traps_taken;
    char letter = 0;
    if (sscanf(line, "%31s", name) != 1) exit(9);
    int is_touch = !name[1] && strchr("rwzk", name[0]) && sscanf(line, "%*s %lu %lu %lu", &a, &b, &c) == 3;
    int is_map = sscanf(line, "map %lu %lu %7s %31s", &a, &b, prot, word) == 4;
    int is_unmap = sscanf(line, "unmap %lu %lu", &a, &b) == 2;
    int is_prot = sscanf(line, "prot %lu %lu %7s", &a, &b, prot) == 3;
    int is_remap = sscanf(line, "remap %lu %lu %lu %lu", &a, &b, &c, &d) == 4;
    int is_mremap = sscanf(line, "mremap %lu %lu %lu %lu", &a, &b, &c, &d) == 4;
    int is_resize = sscanf(line, "resize %lu %lu %lu", &a, &b, &c) == 3;
    int is_adv = sscanf(line, "adv %31s %lu %lu", word, &a, &b) == 3;
    int is_lock_all = sscanf(line, "mlockall %31s", word) == 1;
    int is_unlock_all = !strncmp(line, "munlockall", 10);
    int is_lock = sscanf(line, "mlock %lu %lu %c", &a, &b, &letter) == 3;
    int is_unlock = sscanf(line, "munlock %lu %lu", &a, &b) == 2;
    int number = is_lock_all ? lock_flags(word) : is_lock ? (letter == 'o' ? MLOCK_ONFAULT : 0) : is_adv ? advice(word) : is_map ? mapping_flags(word) : 0;
    traps_taken = traps();
    faults = minflt();
    errno = 0;
    if (is_touch) touch(name[0], a, b, c);
    else if (is_map) ret = mmap(AT(a), b * PAGE, protection(prot), number, -1, 0) == MAP_FAILED ? -1 : 0;
    else if (is_lock_all) ret = mlockall(number);
    else if (is_unlock_all) ret = munlockall();
    else if (is_lock) ret = syscall(SYS_mlock2, AT(a), b * PAGE, number);
    else if (is_unlock) ret = munlock(AT(a), b * PAGE);
    else if (is_unmap) ret = munmap(AT(a), b * PAGE);
    else if (is_adv) ret = madvise(AT(a), b * PAGE, number);
    else if (is_prot) ret = mprotect(AT(a), b * PAGE, protection(prot));
    else if (is_remap) ret = mremap(AT(a), b * PAGE, b * PAGE,
        MREMAP_MAYMOVE | MREMAP_FIXED | (d ? MREMAP_DONTUNMAP : 0), AT(c)) == MAP_FAILED ? -1 : 0;
    else if (is_mremap) ret = mremap(AT(a), b * PAGE, d * PAGE,
        a == c ? 0 : MREMAP_MAYMOVE | MREMAP_FIXED, AT(c)) == MAP_FAILED ? -1 : 0;
    else if (is_resize) ret = mremap(AT(a), b * PAGE, c * PAGE, 0) == MAP_FAILED ? -1 : 0;
    else exit(10);
    int error = ret == -1 ? errno : 0;
    faults = minflt() - faults;
    traps_taken = traps() - traps_taken;
    if (is_touch) ret = touch_failed;
    put("op %ld %d %ld %ld\n", ret, error, faults, traps_taken);
}

static void start_script(void) {
    munmap(ARENA, ARENA_PAGES * PAGE);
    munmap(FILLER, 1ul << 32);
    /* Make this process's own memory present, so that no lock in a script has to populate it. */
    mlockall(MCL_CURRENT);
    munlockall();
    pte_before = field(status_fd, "VmPTE:");
    char *arena = mmap(ARENA, ARENA_PAGES * PAGE, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (arena != ARENA) exit(11);
    splits_before = field(vmstat_fd, "thp_split_pmd ");
}

static void fill(long room) {
    long limit = 0, count = 0;
    FILE *file = fopen("/proc/sys/vm/max_map_count", "r");
    if (!file || fscanf(file, "%ld", &limit) != 1) exit(12);
    fclose(file);
    slurp(maps_fd);
    for (char *at = text; (at = strchr(at, '\n')); at++) count++;
    if (strstr(text, "[vsyscall]")) count--;
    /* Alternating protections prevent merging. */
    for (; count < limit - room; count++)
        if (mmap(FILLER + count * PAGE, PAGE, count % 2 ? PROT_READ : PROT_NONE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED) exit(13);
}

static void report_alignment(unsigned long pages) {
    int aligned = 0;
    for (int i = 0; i < 20; i++) {
        /* A small mapping of varying length shifts each large one; otherwise all would get the same address. */
        char *small = mmap(NULL, (1 + i % 7) * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *map = mmap(NULL, pages * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        aligned += (uintptr_t)map % (512 * PAGE) == 0;
        munmap(map, pages * PAGE);
        munmap(small, PAGE);
    }
    put("aligned %d\n", aligned);
}

static int open_or_skip(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) skip(path);
    return fd;
}

static void open_all(void) {
    struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE, .size = sizeof event,
        .config = PERF_COUNT_SW_PAGE_FAULTS};
    perf_fd = syscall(SYS_perf_event_open, &event, 0, -1, -1, 0);
    if (perf_fd < 0) skip("perf_event_open");
    pagemap_fd = open_or_skip("/proc/self/pagemap");
    kpageflags_fd = open_or_skip("/proc/kpageflags");
    smaps_fd = open_or_skip("/proc/self/smaps");
    maps_fd = open_or_skip("/proc/self/maps");
    status_fd = open_or_skip("/proc/self/status");
    vmstat_fd = open_or_skip("/proc/vmstat");
    collapsed_fd = open_or_skip("/sys/kernel/mm/transparent_hugepage/khugepaged/pages_collapsed");
    zero_fd = open_or_skip("/dev/zero");
    struct scan_arg nothing = {.size = sizeof nothing, .start = 0, .end = 0, .mask = IS_PRESENT};
    if (ioctl(pagemap_fd, SCAN, &nothing) < 0) skip("PAGEMAP_SCAN");
    uint64_t probe;
    if (pread(pagemap_fd, &probe, 8, (unsigned long)out / PAGE * 8) != 8) skip("pagemap");
    if (!(probe << 9)) { errno = EPERM; skip("frame numbers in pagemap"); }
}

/* On an idle machine the first advised mapping wakes up khugepaged. This process creates one before any script does. */
static void start_guard(void) {
    if (fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        char *map = mmap(NULL, 4ul << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(map, 4ul << 20, MADV_HUGEPAGE);
        close(0);
        close(1);
        for (;;) pause();
    }
    usleep(100000);
}

/* Executes every path once, so that code pages and the signal frame are present before anything is measured. */
static void warm_up(void) {
    static const char *const ops[] = {"unmap 0 8", "w 0 16 1", "k 0 16 1", "r 9 1 1", "z 9 1 1", "prot 9 1 r",
        "map 1 1 w p", "adv FREE 8 8", "remap 8 1 20 1", "resize 20 1 2",
        "mlock 0 8 o", "mlock 0 8 -", "munlock 0 8"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        strcpy(line, ops[i]);
        execute();
        report_state();
    }
    out_len = 0;
}

int main(void) {
    cpu_set_t cpu;
    CPU_ZERO(&cpu);
    CPU_SET(sched_getcpu(), &cpu);
    sched_setaffinity(0, sizeof cpu, &cpu);
    setvbuf(stdin, input_buffer, _IOFBF, sizeof input_buffer);
    memset(input_buffer, 1, sizeof input_buffer);
    memset(text, 1, sizeof text);
    memset(out, 1, sizeof out);
    memset(regions, 1, sizeof regions);
    memset(frames, 1, sizeof frames);
    memset(flags, 1, sizeof flags);
    memset(states, 1, sizeof states);
    memset(alt_stack, 1, sizeof alt_stack);
    spare = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    open_all();
    start_guard();
    stack_t stack = {.ss_sp = alt_stack, .ss_size = sizeof alt_stack};
    sigaltstack(&stack, NULL);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_NODEFER};
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    printf("ready\n");
    fflush(stdout);
    start_script();
    warm_up();
    start_script();
    long collapsed = field(collapsed_fd, "");
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "fill ", 5)) {
            fill(atol(line + 5));
            continue;
        }
        if (!strncmp(line, "aligned ", 8)) {
            report_alignment(atol(line + 8));
            flush();
            continue;
        }
        if (strncmp(line, "end", 3)) {
            execute();
            report_state();
            continue;
        }
        long now = field(collapsed_fd, "");
        put("end %ld\n", now - collapsed);
        flush();
        start_script();
        collapsed = now;
    }
    return 0;
}
