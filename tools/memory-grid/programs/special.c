// Programs whose memory the kernel fills, shares or protects in special ways: `special CASE`.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096ul
#define MIB (1ul << 20)
#define RW (PROT_READ | PROT_WRITE)

static char *map(size_t bytes) {
    char *start = mmap(NULL, bytes, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return start;
}

static void write_pages(char *start, size_t bytes, size_t stride) {
    for (size_t at = 0; at < bytes; at += stride) start[at] = 1;
}

static char *guarded;

static void unprotect(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    char *page = (char *)((unsigned long)info->si_addr & -PAGE);
    if (mprotect(page, PAGE, RW)) _exit(1);
}

/// Pages become accessible one by one, in a handler: a write barrier of a collector.
static void handler(void) {
    struct sigaction action = {.sa_sigaction = unprotect, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &action, NULL);
    guarded = map(6 * MIB);
    mprotect(guarded, 6 * MIB, PROT_NONE);
    write_pages(guarded, 6 * MIB, 4 * PAGE);
    mprotect(guarded, 6 * MIB, PROT_READ);
    write_pages(guarded, 6 * MIB, 2 * PAGE);
    char *plain = map(6 * MIB);
    write_pages(plain, 6 * MIB, PAGE);
}

static sigjmp_buf back;

static void jump(int signal) {
    (void)signal;
    siglongjmp(back, 1);
}

/// Accesses to memory that is not mapped, and to guard pages, on an alternate stack.
static void probes(void) {
    static char stack[65536];
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    sigaltstack(&alternate, NULL);
    struct sigaction action = {.sa_handler = jump, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    char *block = map(8 * MIB);
    write_pages(block, 8 * MIB, PAGE);
    munmap(block + 3 * MIB, MIB);
    madvise(block + 5 * MIB, PAGE, 102);
    for (size_t at = 0; at < 8 * MIB; at += 16 * PAGE) {
        if (sigsetjmp(back, 1) == 0) block[at] = 2;
    }
}

static void memory_file(void) {
    int file = memfd_create("grid", 0);
    if (ftruncate(file, 8 * MIB)) exit(1);
    char *shared = mmap(NULL, 8 * MIB, RW, MAP_SHARED, file, 0);
    write_pages(shared, 4 * MIB, PAGE);
    char *private = mmap(NULL, 8 * MIB, RW, MAP_PRIVATE, file, 0);
    write_pages(private, 8 * MIB, 2 * PAGE);
    char *anonymous = map(12 * MIB);
    mmap(anonymous + 2 * MIB, 3 * MIB, RW, MAP_PRIVATE | MAP_FIXED, file, 0);
    mmap(anonymous + 7 * MIB, 2 * MIB, RW, MAP_SHARED | MAP_FIXED, file, 0);
    write_pages(anonymous, 12 * MIB, PAGE);
    char *both = mmap(NULL, 4 * MIB, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    write_pages(both, 4 * MIB, PAGE);
    char *grown = mremap(shared, 8 * MIB, 6 * MIB, 0);
    char *copy = mremap(grown, 0, 6 * MIB, MREMAP_MAYMOVE);
    write_pages(copy, 6 * MIB, PAGE);
    munmap(copy, 6 * MIB);
    write_pages(map(6 * MIB), 6 * MIB, PAGE);
}

static void segment(void) {
    int id = shmget(IPC_PRIVATE, 5 * MIB + 100, IPC_CREAT | 0600);
    char *shared = shmat(id, NULL, 0);
    shmctl(id, IPC_RMID, NULL);
    write_pages(shared, 5 * MIB, PAGE);
    char *area = map(8 * MIB);
    write_pages(area, 8 * MIB, PAGE);
    char *over = shmat(id, area + MIB, SHM_REMAP);
    if (over != (void *)-1) write_pages(over, 5 * MIB, PAGE);
    shmdt(shared);
    shmdt(over);
    write_pages(map(6 * MIB), 6 * MIB, PAGE);
}

/// Faults inside the kernel: read, readv, O_DIRECT (pins pages), pipes and vmsplice.
static void copies(void) {
    char name[] = "/var/tmp/grid-XXXXXX";
    int file = mkstemp(name);
    char *source = map(8 * MIB);
    memset(source, 7, 8 * MIB);
    if (write(file, source, 8 * MIB) != (long)(8 * MIB)) exit(1);
    char *whole = map(8 * MIB);
    if (pread(file, whole, 8 * MIB, 0) < 0) exit(1);
    char *parts = map(8 * MIB);
    struct iovec list[4];
    for (int part = 0; part < 4; part++) {
        list[part].iov_base = parts + part * 2 * MIB + 100;
        list[part].iov_len = MIB;
    }
    if (preadv(file, list, 4, 0) < 0) exit(1);
    fsync(file);
    int direct = open(name, O_RDONLY | O_DIRECT);
    char *pinned = map(8 * MIB);
    if (direct >= 0 && pread(direct, pinned + MIB, 4 * MIB, 0) < 0) perror("O_DIRECT");
    write_pages(pinned, 8 * MIB, PAGE);
    char *unread = map(4 * MIB);
    if (pwrite(file, unread, 4 * MIB, 0) < 0) exit(1);
    write_pages(unread, 4 * MIB, PAGE);
    char *other = map(4 * MIB);
    struct iovec from = {source, 3 * MIB}, to = {other + 5 * PAGE, 3 * MIB};
    if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) < 0) perror("process_vm_readv");
    write_pages(other, 4 * MIB, PAGE);
    unlink(name);
}

static void user_faults(void) {
    int events = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | UFFD_USER_MODE_ONLY);
    char *block = map(8 * MIB);
    struct uffdio_api api = {.api = UFFD_API};
    struct uffdio_register area = {{(unsigned long)block, 4 * MIB}, UFFDIO_REGISTER_MODE_MISSING, 0};
    if (events < 0 || ioctl(events, UFFDIO_API, &api) || ioctl(events, UFFDIO_REGISTER, &area)) exit(3);
    char *source = map(MIB);
    memset(source, 3, MIB);
    struct uffdio_copy copy = {(unsigned long)block, (unsigned long)source, MIB, 0, 0};
    if (ioctl(events, UFFDIO_COPY, &copy)) exit(4);
    struct uffdio_zeropage zero = {{(unsigned long)block + MIB, 3 * MIB}, 0, 0};
    if (ioctl(events, UFFDIO_ZEROPAGE, &zero)) exit(5);
    write_pages(block, 8 * MIB, PAGE);
}

static void hugetlb(void) {
    char *block = mmap(NULL, 4 * MIB, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    if (block == MAP_FAILED) block = map(4 * MIB);
    write_pages(block, 4 * MIB, PAGE);
    write_pages(map(4 * MIB), 4 * MIB, PAGE);
}

static const struct {
    const char *name;
    void (*run)(void);
} cases[] = {{"handler", handler}, {"probes", probes}, {"memfd", memory_file}, {"segment", segment},
    {"copies", copies}, {"userfaultfd", user_faults}, {"hugetlb", hugetlb}};

int main(int count, char **words) {
    for (size_t index = 0; count > 1 && index < sizeof cases / sizeof *cases; index++) {
        if (strcmp(cases[index].name, words[1]) == 0) {
            cases[index].run();
            return 0;
        }
    }
    fputs("usage: special CASE\n", stderr);
    return 2;
}
