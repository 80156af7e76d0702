/* A program that runs before its recorder. It allocates all the time, and does what it reads: a letter, a number, a
 * newline. It answers each command with a line. All calls that it counts have sizes that no other call has. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OLD = 64, THREADS_MAX = 8 };

static void *old[OLD];
static long rounds;

/* An executable at a fixed address has stubs for functions whose addresses it takes. */
static void *const taken[] __attribute__((used)) = {malloc, calloc, realloc, free, posix_memalign, memalign};

static int failures;

static void check(int is_true) {
    if (!is_true) __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
}

/* Eleven calls a round, each with arguments of its own; all results are checked. */
static void *work(void *unused) {
    for (long i = 0; i < rounds; i++) {
        errno = 1234;
        char *a = malloc(1077);
        char *b = calloc(3, 1078);
        a[0] = 'a';
        b = realloc(b, 8079);
        check(b[0] == 0 && b[1078] == 0);
        void *c = NULL;
        check(posix_memalign(&c, 64, 1080) == 0 && (uintptr_t)c % 64 == 0);
        void *d = aligned_alloc(128, 1152);
        void *e = memalign(256, 1082);
        check((uintptr_t)d % 128 == 0 && (uintptr_t)e % 256 == 0);
        check(malloc_usable_size(a) >= 1077 && a[0] == 'a' && errno == 1234);
        free(a), free(b), free(c), free(d), free(e);
    }
    return unused;
}

static void work_in_threads(long threads) {
    pthread_t all[THREADS_MAX];
    for (long i = 0; i < threads; i++) pthread_create(&all[i], NULL, work, NULL);
    for (long i = 0; i < threads; i++) pthread_join(all[i], NULL);
}

static void fork_and_work(long blocks) {
    pid_t child = fork();
    if (child == 0) {
        for (long i = 0; i < blocks; i++) free(malloc(1090));
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    check(status == 0);
}

static void free_old(long blocks) {
    for (long i = 0; i < blocks && i < OLD; i++) {
        if (i % 2) old[i] = realloc(old[i], 1091);
        free(old[i]);
        old[i] = NULL;
    }
}

static void use_plugin(const char *path, long blocks) {
    void *plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    check(plugin != NULL);
    if (!plugin) return;
    void (*allocate)(long) = (void (*)(long))dlsym(plugin, "allocate");
    check(allocate != NULL);
    allocate(blocks);
    check(dlclose(plugin) == 0);
}

/* The words through which modules call each other: what is read-only after relocation, and the slots of calls. */
static int hash_module(struct dl_phdr_info *info, size_t size, void *to) {
    (void)size;
    if (strstr(info->dlpi_name, "attached.so") || strstr(info->dlpi_name, "ld-linux")) return 0;
    uint64_t *hash = to;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t at = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_GNU_RELRO)
            for (uintptr_t end = at + header->p_memsz; at + 8 <= end; at += 8) *hash = *hash * 31 + *(uint64_t *)at;
        if (header->p_type != PT_DYNAMIC) continue;
        uintptr_t relocations = 0, bytes = 0;
        for (const ElfW(Dyn) *entry = (void *)at; entry->d_tag; entry++) {
            if (entry->d_tag == DT_JMPREL) relocations = entry->d_un.d_ptr;
            if (entry->d_tag == DT_PLTRELSZ) bytes = entry->d_un.d_val;
        }
        if (relocations < info->dlpi_addr) relocations += info->dlpi_addr;
        for (uintptr_t done = 0; done < bytes; done += sizeof(ElfW(Rela))) {
            const ElfW(Rela) *relocation = (void *)(relocations + done);
            *hash = *hash * 31 + *(uint64_t *)(info->dlpi_addr + relocation->r_offset);
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    const char *plugin = argc > 1 ? argv[1] : "";
    int allocates = 1;
    for (int i = 0; i < OLD; i++) old[i] = malloc(1076);
    rounds = 1;
    work(NULL);
    dlsym(RTLD_DEFAULT, "none");
    dlclose(dlopen(NULL, RTLD_NOW));
    fork_and_work(0);
    char line[64];
    for (;;) {
        struct pollfd input = {0, POLLIN, 0};
        if (allocates) free(malloc(8));
        if (poll(&input, 1, allocates ? 1 : -1) <= 0) continue;
        ssize_t got = read(0, line, sizeof line - 1);
        if (got <= 0) return failures != 0;
        line[got] = 0;
        long number = atol(line + 1);
        uint64_t hash = 1;
        switch (line[0]) {
        case 'i': allocates = !number; break;
        case 'n': rounds = number; break;
        case 'w': work(NULL); break;
        case 't': work_in_threads(number); break;
        case 'f': fork_and_work(number); break;
        case 'o': free_old(number); break;
        case 'p': use_plugin(plugin, number); break;
        case 'x': execl("/bin/sleep", "sleep", "100", NULL); return 3;
        case 'g': dl_iterate_phdr(hash_module, &hash); break;
        }
        int length = snprintf(line, sizeof line, "%d %llu\n", failures, (unsigned long long)hash);
        if (write(1, line, length) != length) return 2;
    }
}
