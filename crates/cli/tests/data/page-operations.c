/* A program whose page operations are known: crates/cli/tests/command/memory_recordings.rs has the counts.
   cc -O1 -static -nostdlib -ffreestanding -fno-stack-protector -fcf-protection=none */

enum { READ = 0, OPEN = 2, MMAP = 9, MUNMAP = 11, BRK = 12, MREMAP = 25, MADVISE = 28, FORK = 57, EXIT = 60, WAIT4 = 61 };
enum { PAGE = 4096, HUGE = 2 << 20 };

static long call(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

static char *map(long bytes, long hint) {
    return (char *)call(MMAP, hint, bytes, 3 /* read, write */, 0x22 /* private, anonymous */, -1, 0);
}

static void write_pages(char *base, long from, long end) {
    for (long page = from; page < end; page++)
        *(volatile char *)(base + page * PAGE) = 1;
}

static void read_pages(char *base, long from, long end) {
    for (long page = from; page < end; page++)
        (void)*(volatile char *)(base + page * PAGE);
}

void body(void) {
    char *table = map(100 * PAGE, 0);
    write_pages(table, 0, 60);                                /* 60 writes */
    read_pages(table, 60, 70);                                /* 10 reads: zero pages */
    write_pages(table, 60, 65);                               /* 5 writes to them */
    call(MUNMAP, (long)table, 20 * PAGE, 0, 0, 0, 0);
    call(MADVISE, (long)table + 20 * PAGE, 4 * PAGE, 4 /* MADV_DONTNEED */, 0, 0, 0);
    write_pages(table, 20, 24);                               /* 4 writes */
    long zero = call(OPEN, (long)"/dev/zero", 0, 0, 0, 0, 0);
    call(READ, zero, (long)table + 70 * PAGE, 100, 0, 0, 0);  /* 1 write, by the kernel */

    long end = (call(BRK, 0, 0, 0, 0, 0, 0) + PAGE - 1) / PAGE * PAGE;
    call(BRK, end + 16 * PAGE, 0, 0, 0, 0, 0);
    write_pages((char *)end, 0, 16);                          /* 16 writes */
    call(BRK, end + 8 * PAGE, 0, 0, 0, 0, 0);

    char *grown = map(8 * PAGE, 0);
    write_pages(grown, 0, 8);                                 /* 8 writes */
    grown = (char *)call(MREMAP, (long)grown, 8 * PAGE, 32 * PAGE, 1 /* may move */, 0, 0);
    write_pages(grown, 8, 32);                                /* 24 writes */

    /* The hint is free in every address space. */
    char *huge = map(2 * HUGE, 0x100000000000);
    write_pages(huge, 0, 2 * HUGE / PAGE);                    /* 1024 writes */

    long child = call(FORK, 0, 0, 0, 0, 0, 0);
    if (child == 0) {
        write_pages(table, 30, 37);                           /* 7 writes, by the child */
        call(EXIT, 0, 0, 0, 0, 0, 0);
    }
    call(WAIT4, child, 0, 0, 0, 0, 0);
    write_pages(table, 30, 33);                               /* 3 writes */
    call(EXIT, 0, 0, 0, 0, 0, 0);
}

__asm__(".globl _start\n_start: xor %ebp, %ebp\nand $-16, %rsp\ncall body\n");
