// Programs for single corners of Linux's memory management: `corners NAME`. Each repeats itself exactly.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define PAGE 4096UL
#define MIB (1UL << 20)
#define HUGE_PAGE (2 * MIB)
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif
#define MADV_GUARD_INSTALL_ 102
#define MADV_GUARD_REMOVE_ 103
#define MAP_DROPPABLE_ 8
#define THP_EXCEPT_ADVISED 2

static char *map_flags(size_t bytes, int protection, int flags) {
    char *at = mmap(NULL, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (at == MAP_FAILED) { perror("mmap"); exit(3); }
    return at;
}
static char *map(size_t bytes) { return map_flags(bytes, PROT_READ | PROT_WRITE, 0); }
static char *aligned(char *at) { return (char *)(((uintptr_t)at + HUGE_PAGE - 1) & -HUGE_PAGE); }
static void write_range(char *at, size_t bytes, size_t step) { for (size_t i = 0; i < bytes; i += step) ((volatile char *)at)[i] = 1; }
static void read_range(char *at, size_t bytes, size_t step) { for (size_t i = 0; i < bytes; i += step) (void)((volatile char *)at)[i]; }

// --- Kinds of mappings ---

static void dev_zero(void) {
    int zero = open("/dev/zero", O_RDWR);
    char *at = mmap(NULL, 9 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
    write_range(at, 5 * MIB, PAGE);
    read_range(at + 5 * MIB, 4 * MIB, PAGE);
    char *shared = mmap(NULL, 4 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED, zero, 0);
    write_range(shared, 3 * MIB, PAGE);
    munmap(at + MIB, MIB / 2);
}

static void droppable(void) {
    char *at = mmap(NULL, 9 * MIB, PROT_READ | PROT_WRITE, MAP_DROPPABLE_ | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) at = map(9 * MIB);
    write_range(at, 7 * MIB, PAGE);
}

static void low_addresses(void) {
    write_range(map_flags(6 * MIB, PROT_READ | PROT_WRITE, MAP_32BIT), 6 * MIB, PAGE);
    char *at = mmap((void *)0x200000000, 5 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    write_range(at, 5 * MIB, PAGE);
    mmap((void *)0x200000000, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    write_range(map_flags(6 * MIB, PROT_READ | PROT_WRITE, MAP_STACK | MAP_NORESERVE), 6 * MIB, PAGE);
}

static void shared_kinds(void) {
    write_range(mmap(NULL, 6 * MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), 5 * MIB, PAGE);
    int memory = memfd_create("corner", 0);
    if (ftruncate(memory, 6 * MIB)) exit(3);
    char *copy = mmap(NULL, 6 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE, memory, 0);
    write_range(copy, 3 * MIB, PAGE);
    read_range(copy + 3 * MIB, 3 * MIB, PAGE);
    int id = shmget(IPC_PRIVATE, 4 * MIB, IPC_CREAT | 0600);
    char *segment = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    write_range(segment, 4 * MIB, PAGE);
    shmdt(segment);
    write_range(map(5 * MIB), 5 * MIB, PAGE);
}

static void file_copies(void) {
    int self = open("/proc/self/exe", O_RDONLY);
    char *at = mmap(NULL, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, self, 0);
    for (int i = 0; i < 4; i++) at[i * PAGE] = 1;
    char *anonymous = mmap(aligned(map(8 * MIB)), 2 * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    write_range(anonymous, 2 * HUGE_PAGE, PAGE);
    mmap(anonymous + MIB, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, self, 0);
    anonymous[MIB] = 1;
}

static void hugetlb(void) {
    char *at = mmap(NULL, 4 * HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (at == MAP_FAILED) { write_range(map(4 * HUGE_PAGE), 4 * HUGE_PAGE, PAGE); return; }
    write_range(at, HUGE_PAGE, PAGE);
    (void)*(volatile char *)(at + HUGE_PAGE);
    madvise(at, HUGE_PAGE, MADV_DONTNEED);
    write_range(at + 2 * HUGE_PAGE, 2 * HUGE_PAGE, HUGE_PAGE);
    munmap(at + 3 * HUGE_PAGE, HUGE_PAGE);
    int memory = memfd_create("huge", MFD_HUGETLB);
    if (memory >= 0 && !ftruncate(memory, HUGE_PAGE)) {
        char *copy = mmap(NULL, HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, memory, 0);
        if (copy != MAP_FAILED) { read_range(copy, HUGE_PAGE, HUGE_PAGE); }
    }
}

// --- Calls ---

static void dont_unmap(void) {
    char *at = aligned(map(10 * MIB));
    write_range(at, 3 * HUGE_PAGE, PAGE);
    char *moved = mremap(at, 2 * HUGE_PAGE, 2 * HUGE_PAGE, MREMAP_MAYMOVE | 4, 0);
    write_range(at, HUGE_PAGE, PAGE);
    if (moved != MAP_FAILED) write_range(moved, HUGE_PAGE / 2, PAGE);
}

static void move_unaligned(void) {
    char *at = aligned(map(14 * MIB));
    write_range(at, 4 * HUGE_PAGE, PAGE);
    char *to = aligned(map(14 * MIB));
    mremap(at + 3 * PAGE, HUGE_PAGE, HUGE_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + 5 * PAGE);
    mremap(at + 2 * HUGE_PAGE, 2 * HUGE_PAGE, 2 * HUGE_PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + 2 * HUGE_PAGE);
    write_range(to, 4 * HUGE_PAGE, PAGE);
    write_range(at + HUGE_PAGE + 3 * PAGE, HUGE_PAGE - 3 * PAGE, PAGE);
}

static void grow_and_shrink(void) {
    char *at = map(MIB + 12 * PAGE);
    size_t bytes = MIB + 12 * PAGE;
    for (int i = 0; i < 24; i++) {
        size_t next = bytes + 37 * PAGE * (i + 1);
        at = mremap(at, bytes, next, MREMAP_MAYMOVE);
        write_range(at + bytes, next - bytes, PAGE);
        bytes = next;
        if (i % 5 == 4) { at = mremap(at, bytes, bytes / 2 & -PAGE, 0); bytes = bytes / 2 & -PAGE; map(3 * PAGE); }
    }
}

static void collapse(void) {
    char *at = aligned(map(14 * MIB));
    write_range(at, HUGE_PAGE, 8 * PAGE);
    madvise(at, HUGE_PAGE, MADV_COLLAPSE);
    write_range(at, HUGE_PAGE, PAGE);
    read_range(at + HUGE_PAGE, HUGE_PAGE, 3 * PAGE);
    madvise(at + HUGE_PAGE, HUGE_PAGE, MADV_COLLAPSE);
    write_range(at + HUGE_PAGE, HUGE_PAGE, PAGE);
    madvise(at + 2 * HUGE_PAGE, 2 * HUGE_PAGE, MADV_COLLAPSE);
    write_range(at + 2 * HUGE_PAGE, 2 * HUGE_PAGE, PAGE);
    madvise(at + PAGE, 4 * HUGE_PAGE, MADV_COLLAPSE);
}

static void guards(void) {
    char *at = aligned(map(10 * MIB));
    madvise(at + MIB, 4 * PAGE, MADV_GUARD_INSTALL_);
    write_range(at, MIB, PAGE);
    write_range(at + HUGE_PAGE, HUGE_PAGE, PAGE);
    madvise(at + HUGE_PAGE + MIB, 4 * PAGE, MADV_GUARD_INSTALL_);
    madvise(at + HUGE_PAGE + MIB, 2 * PAGE, MADV_GUARD_REMOVE_);
    write_range(at + HUGE_PAGE + MIB, 2 * PAGE, PAGE);
    write_range(at + 2 * HUGE_PAGE, MIB, PAGE);
}

static void free_later(void) {
    char *at = aligned(map(14 * MIB));
    write_range(at, 4 * HUGE_PAGE, PAGE);
    madvise(at, HUGE_PAGE, MADV_FREE);
    madvise(at + HUGE_PAGE + MIB, MIB, MADV_FREE);
    read_range(at, 4 * HUGE_PAGE, PAGE);
    madvise(at + 2 * HUGE_PAGE + 3 * PAGE, MIB, MADV_DONTNEED);
    write_range(at + 2 * HUGE_PAGE, HUGE_PAGE / 2, PAGE);
    madvise(at + 3 * HUGE_PAGE, HUGE_PAGE, MADV_DONTNEED);
    read_range(at + 3 * HUGE_PAGE, HUGE_PAGE, PAGE);
    write_range(at + 3 * HUGE_PAGE, MIB, 4 * PAGE);
}

static void locks(void) {
    struct rlimit limit = {64 * MIB, 64 * MIB};
    setrlimit(RLIMIT_MEMLOCK, &limit);
    char *at = aligned(map(14 * MIB));
    syscall(SYS_mlock2, at, 2 * HUGE_PAGE, 1 /* MLOCK_ONFAULT */);
    write_range(at, HUGE_PAGE + MIB, PAGE);
    madvise(at, HUGE_PAGE, MADV_DONTNEED);
    madvise(at, HUGE_PAGE, MADV_DONTNEED_LOCKED);
    mlock(at + 2 * HUGE_PAGE, HUGE_PAGE + 5 * PAGE);
    munlock(at, MIB);
    mlockall(MCL_FUTURE | MCL_ONFAULT);
    write_range(map(5 * MIB), 3 * MIB, PAGE);
    munlockall();
    map_flags(3 * MIB, PROT_READ | PROT_WRITE, MAP_LOCKED);
}

static void populates(void) {
    char *at = map_flags(9 * MIB, PROT_READ | PROT_WRITE, MAP_POPULATE);
    mprotect(at, MIB, PROT_READ);
    map_flags(4 * MIB, PROT_READ, MAP_POPULATE);
    map_flags(4 * MIB, PROT_NONE, MAP_POPULATE);
    char *more = aligned(map(10 * MIB));
    madvise(more, 3 * MIB, MADV_POPULATE_READ);
    madvise(more + 2 * MIB, 3 * MIB, MADV_POPULATE_WRITE);
    write_range(more, 5 * MIB, PAGE);
}

static void advice_marks(void) {
    char *at = aligned(map(22 * MIB));
    const int advice[] = {MADV_MERGEABLE, MADV_DONTFORK, MADV_WIPEONFORK, MADV_DONTDUMP, MADV_SEQUENTIAL, MADV_RANDOM, MADV_NOHUGEPAGE, MADV_HUGEPAGE};
    for (int i = 0; i < 8; i++) madvise(at + i * HUGE_PAGE + MIB, MIB / 2, advice[i]);
    write_range(at, 9 * HUGE_PAGE, PAGE);
    madvise(at + PAGE + 1, MIB, MADV_DONTNEED);
    madvise(at, 0, MADV_HUGEPAGE);
    madvise(at + 2 * HUGE_PAGE, HUGE_PAGE, MADV_COLD);
}

static void protections(void) {
    char *at = aligned(map_flags(12 * MIB, PROT_NONE, MAP_NORESERVE));
    for (size_t grown = 0; grown < 3 * HUGE_PAGE; grown += 33 * PAGE) {
        mprotect(at + grown, 33 * PAGE, PROT_READ | PROT_WRITE);
        write_range(at + grown, 33 * PAGE, PAGE);
    }
    mprotect(at, HUGE_PAGE, PROT_READ);
    mprotect(at, HUGE_PAGE, PROT_READ | PROT_WRITE);
    write_range(at, HUGE_PAGE, PAGE);
    mprotect(at + 3 * HUGE_PAGE, HUGE_PAGE, PROT_READ);
    read_range(at + 3 * HUGE_PAGE, HUGE_PAGE, PAGE);
    mprotect(at + 3 * HUGE_PAGE, HUGE_PAGE, PROT_READ | PROT_WRITE);
    write_range(at + 3 * HUGE_PAGE, HUGE_PAGE, 2 * PAGE);
}

static void many_mappings(void) {
    char *at = map_flags(96 * MIB, PROT_READ | PROT_WRITE, MAP_NORESERVE);
    long failed = 0;
    for (long i = 0; i < 24000; i += 2) failed += mprotect(at + i * PAGE, PAGE, PROT_READ) != 0;
    for (long i = 0; i < 24000; i += 5) read_range(at + i * PAGE, 1, 1);
    for (long i = 0; i < 24000; i += 2) failed += mprotect(at + i * PAGE, PAGE, PROT_READ | PROT_WRITE) != 0;
    write_range(at, 12 * MIB, PAGE);
    printf("%ld\n", failed);
}

static void limits(void) {
    struct rlimit limit = {40 * MIB, 40 * MIB};
    setrlimit(RLIMIT_AS, &limit);
    for (int i = 0; i < 20; i++) {
        char *at = mmap(NULL, 5 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at != MAP_FAILED) write_range(at, 5 * MIB, PAGE);
    }
    void *kept = NULL;
    for (int i = 0; i < 100; i++) { void *block = malloc(600 << 10); if (block) { memset(block, 1, 600 << 10); kept = block; } }
    if (kept) free(kept);
}

static void heap_end(void) {
    char *start = sbrk(0);
    sbrk(7 * MIB + 3 * PAGE);
    write_range(start, 7 * MIB, PAGE);
    sbrk(-(intptr_t)(3 * MIB));
    sbrk(5 * MIB);
    write_range(start + 3 * MIB, 4 * MIB, PAGE);
    munmap(aligned(start) + MIB, MIB / 2);
    sbrk(MIB);
    write_range(start + 8 * MIB, MIB, PAGE);
}

// --- prctl, threads, stacks ---

static void thp_disable(void) {
    char *at = aligned(map(14 * MIB));
    write_range(at, HUGE_PAGE, PAGE);
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    write_range(at + HUGE_PAGE, HUGE_PAGE, PAGE);
    madvise(at + 3 * HUGE_PAGE, HUGE_PAGE, MADV_HUGEPAGE);
    write_range(at + 3 * HUGE_PAGE, HUGE_PAGE, PAGE);
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    write_range(at + 2 * HUGE_PAGE, HUGE_PAGE, PAGE);
}

static void thp_disable_for_good(void) {
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    write_range(map(9 * MIB), 8 * MIB, PAGE);
}

static void thp_except_advised(void) {
    long failed = prctl(PR_SET_THP_DISABLE, 1, THP_EXCEPT_ADVISED, 0, 0);
    char *at = aligned(map(14 * MIB));
    madvise(at + HUGE_PAGE, HUGE_PAGE, MADV_HUGEPAGE);
    write_range(at, 3 * HUGE_PAGE, PAGE);
    printf("%ld %d\n", failed, prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
}

static void *deep(void *depth) {
    volatile char frame[64 << 10];
    write_range((char *)frame, sizeof frame, PAGE);
    return depth ? deep((char *)depth - 1) : (void *)(uintptr_t)frame[0];
}

static void thread_stacks(void) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 32 * MIB);
    for (long i = 0; i < 4; i++) {
        pthread_t thread;
        pthread_create(&thread, &attributes, deep, (void *)(i * 60));
        pthread_join(thread, NULL);
    }
}

static void own_stacks(void) {
    char *stack = map_flags(16 * MIB, PROT_READ | PROT_WRITE, MAP_NORESERVE);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, stack, 16 * MIB);
    pthread_t thread;
    pthread_create(&thread, &attributes, deep, (void *)100L);
    pthread_join(thread, NULL);
}

static ucontext_t main_context, other_context;
static void coroutine(void) { deep((void *)80L); swapcontext(&other_context, &main_context); }
static void coroutines(void) {
    for (int i = 0; i < 5; i++) {
        getcontext(&other_context);
        other_context.uc_stack.ss_sp = map(8 * MIB);
        other_context.uc_stack.ss_size = 8 * MIB;
        other_context.uc_link = &main_context;
        makecontext(&other_context, coroutine, 0);
        swapcontext(&main_context, &other_context);
    }
}

static void main_stack(void) { deep((void *)110L); }

static void *late(void *unused) { usleep(50000); write_range(map(9 * MIB), 8 * MIB, PAGE); (void)unused; return NULL; }
static void main_ends_first(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, late, NULL);
    pthread_exit(NULL);
}

static void *execute(void *path) { execl("/proc/self/exe", "corners", "grow-and-shrink", (char *)NULL); return path; }
static void exec_from_thread(void) {
    write_range(map(6 * MIB), 6 * MIB, PAGE);
    pthread_t thread;
    pthread_create(&thread, NULL, execute, NULL);
    pthread_join(thread, NULL);
}

static void arenas(void) {
    for (int i = 0; i < 40000; i++) { void *block = malloc(100 + i % 900); if (i % 3) memset(block, 1, 100); else free(block); }
    char *large = malloc(20 * MIB);
    memset(large, 1, 9 * MIB);
    large = realloc(large, 31 * MIB);
    memset(large + 20 * MIB, 1, 11 * MIB);
    free(large);
}

// --- Memory that the kernel writes ---

static void kernel_writes(void) {
    char *at = aligned(map(22 * MIB));
    int zero = open("/dev/zero", O_RDONLY);
    for (int i = 0; i < 3; i++) if (read(zero, at + i * HUGE_PAGE, HUGE_PAGE - 5 * PAGE) < 0) exit(3);
    int pipes[2];
    if (pipe(pipes) || write(pipes[1], at, 60000) < 0 || read(pipes[0], at + 4 * HUGE_PAGE + 100, 60000) < 0) exit(3);
    struct iovec parts[2] = {{at + 5 * HUGE_PAGE + MIB, 3 * PAGE}, {at + 6 * HUGE_PAGE, MIB}};
    if (readv(zero, parts, 2) < 0 || syscall(SYS_getrandom, at + 7 * HUGE_PAGE, 3 * PAGE, 0) < 0) exit(3);
    int null = open("/dev/null", O_WRONLY);
    if (write(null, at + 8 * HUGE_PAGE, HUGE_PAGE) < 0) exit(3);
}

static void memory_file(void) {
    char *at = aligned(map(10 * MIB)), bytes[3 * PAGE];
    memset(bytes, 1, sizeof bytes);
    int memory = open("/proc/self/mem", O_RDWR);
    mprotect(at + HUGE_PAGE, HUGE_PAGE, PROT_READ);
    if (pwrite(memory, bytes, sizeof bytes, (off_t)(uintptr_t)at + 100) < 0) exit(3);
    if (pwrite(memory, bytes, sizeof bytes, (off_t)(uintptr_t)at + HUGE_PAGE) < 0) exit(3);
    write_range(at + 2 * HUGE_PAGE, HUGE_PAGE, PAGE);
}

// --- Processes ---

static void wait_for(pid_t child) { int status; waitpid(child, &status, 0); }

static void fork_advice(void) {
    char *at = aligned(map(14 * MIB));
    madvise(at, HUGE_PAGE, MADV_WIPEONFORK);
    madvise(at + HUGE_PAGE, HUGE_PAGE, MADV_DONTFORK);
    write_range(at, 3 * HUGE_PAGE, PAGE);
    pid_t child = fork();
    if (!child) { write_range(at, MIB, PAGE); write_range(at + 3 * HUGE_PAGE, MIB, PAGE); _exit(0); }
    wait_for(child);
}

static void fork_and_exec(void) {
    write_range(map(9 * MIB), 9 * MIB, PAGE);
    for (int i = 0; i < 3; i++) {
        pid_t child = i == 1 ? vfork() : fork();
        if (!child) { execl("/proc/self/exe", "corners", "arenas", (char *)NULL); _exit(1); }
        wait_for(child);
    }
}

static void outlived(void) {
    char *at = map(9 * MIB);
    write_range(at, 5 * MIB, PAGE);
    if (!fork()) { usleep(200000); write_range(at, 9 * MIB, PAGE); _exit(0); }
}

static void unmaps_all(void) {
    for (int i = 0; i < 12; i++) { char *at = map((3 + i) * MIB); write_range(at, (3 + i) * MIB, PAGE); munmap(at, (3 + i) * MIB); }
}

static void killed(void) { write_range(map(9 * MIB), 7 * MIB, PAGE); raise(SIGKILL); }

static const struct { const char *name; void (*run)(void); } CORNERS[] = {
    {"dev-zero", dev_zero}, {"droppable", droppable}, {"low-addresses", low_addresses}, {"shared-kinds", shared_kinds}, {"file-copies", file_copies},
    {"hugetlb", hugetlb}, {"dont-unmap", dont_unmap}, {"move-unaligned", move_unaligned}, {"grow-and-shrink", grow_and_shrink},
    {"collapse", collapse}, {"guards", guards}, {"free-later", free_later}, {"locks", locks}, {"populates", populates},
    {"advice-marks", advice_marks}, {"protections", protections}, {"many-mappings", many_mappings}, {"limits", limits}, {"heap-end", heap_end},
    {"thp-disable", thp_disable}, {"thp-disable-for-good", thp_disable_for_good}, {"thp-except-advised", thp_except_advised},
    {"thread-stacks", thread_stacks}, {"own-stacks", own_stacks}, {"coroutines", coroutines}, {"main-stack", main_stack},
    {"main-ends-first", main_ends_first}, {"exec-from-thread", exec_from_thread}, {"arenas", arenas}, {"kernel-writes", kernel_writes},
    {"memory-file", memory_file}, {"fork-advice", fork_advice}, {"fork-and-exec", fork_and_exec}, {"outlived", outlived},
    {"unmaps-all", unmaps_all}, {"killed", killed},
};

int main(int argc, char **argv) {
    for (size_t i = 0; i < sizeof CORNERS / sizeof *CORNERS; i++) {
        if (argc == 1) puts(CORNERS[i].name);
        else if (!strcmp(argv[1], CORNERS[i].name)) { CORNERS[i].run(); return 0; }
    }
    return argc == 1 ? 0 : 2;
}
