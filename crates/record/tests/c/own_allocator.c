// A program with an allocator of its own, which counts its calls itself. It performs commands from standard input and
// answers each with all counts: malloc calloc realloc free memalign get put nested, and rounds of calls of libc and of
// mappings, of all threads and processes.
#include <pthread.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define OWN __attribute__((noinline, visibility("default")))
#define COUNT(what) __atomic_fetch_add(&counts[what], 1, __ATOMIC_RELAXED)

enum { MALLOC, CALLOC, REALLOC, FREE, MEMALIGN, GET, PUT, NESTED, LIBC, MAPPED, COUNTS };
static unsigned long *counts; // shared with children

struct block { size_t bytes; struct block *next; size_t unused[6]; };
static struct block *lists[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char arena[64 << 20] __attribute__((aligned(4096)));
static size_t used;
static _Thread_local jmp_buf failed;

static int class_of(size_t bytes) {
    int class = 6;
    while (((size_t)1 << class) < bytes + sizeof(struct block)) class++;
    return class;
}

OWN void *own_malloc(size_t bytes) {
    COUNT(MALLOC);
    if (bytes == 13) longjmp(failed, 1);
    int class = class_of(bytes);
    pthread_mutex_lock(&lock);
    struct block *block = lists[class];
    if (block) lists[class] = block->next;
    else { block = (struct block *)(arena + used); used += (size_t)1 << class; if (used > sizeof arena) abort(); }
    block->bytes = bytes;
    pthread_mutex_unlock(&lock);
    return block + 1;
}

OWN void own_free(void *p) {
    COUNT(FREE);
    if (!p) return;
    struct block *block = (struct block *)p - 1;
    int class = class_of(block->bytes);
    pthread_mutex_lock(&lock);
    block->next = lists[class];
    lists[class] = block;
    pthread_mutex_unlock(&lock);
}

OWN void *own_calloc(size_t n, size_t bytes) {
    COUNT(CALLOC);
    COUNT(NESTED);
    void *p = own_malloc(n * bytes);
    __atomic_fetch_sub(&counts[MALLOC], 1, __ATOMIC_RELAXED);
    return memset(p, 0, n * bytes);
}

OWN void *own_realloc(void *old, size_t bytes) {
    COUNT(REALLOC);
    COUNT(NESTED);
    void *p = own_malloc(bytes);
    __atomic_fetch_sub(&counts[MALLOC], 1, __ATOMIC_RELAXED);
    if (!old) return p;
    size_t before = ((struct block *)old - 1)->bytes;
    memcpy(p, old, before < bytes ? before : bytes);
    COUNT(NESTED);
    own_free(old);
    __atomic_fetch_sub(&counts[FREE], 1, __ATOMIC_RELAXED);
    return p;
}

OWN int own_posix_memalign(void **p, size_t align, size_t bytes) {
    COUNT(MEMALIGN);
    if (align & (align - 1)) return 22;
    COUNT(NESTED);
    *p = own_malloc(bytes);
    __atomic_fetch_sub(&counts[MALLOC], 1, __ATOMIC_RELAXED);
    return 0;
}

struct pool { void *free; };
OWN void *pool_get(struct pool *pool, size_t bytes) {
    COUNT(GET);
    COUNT(NESTED);
    void *p = own_malloc(bytes);
    __atomic_fetch_sub(&counts[MALLOC], 1, __ATOMIC_RELAXED);
    pool->free = p;
    return p;
}

OWN void pool_put(struct pool *pool, void *p) {
    COUNT(PUT);
    COUNT(NESTED);
    pool->free = 0;
    own_free(p);
    __atomic_fetch_sub(&counts[FREE], 1, __ATOMIC_RELAXED);
}

static void own_rounds(int rounds) {
    struct pool pool;
    for (int round = 0; round < rounds; round++) {
        char *a = own_malloc(1077);
        char *b = own_calloc(3, 1078);
        a = own_realloc(a, 8079);
        void *c = 0;
        if (own_posix_memalign(&c, 64, 1080)) abort();
        void *bad = 0;
        if (!own_posix_memalign(&bad, 3, 1081)) abort();
        char *d = pool_get(&pool, 1082);
        memset(a, 1, 8079);
        pool_put(&pool, d);
        own_free(a);
        own_free(b);
        own_free(c);
        own_free(0);
    }
}

// Sizes that nothing else in the program has.
static void libc_rounds(int rounds) {
    for (int round = 0; round < rounds; round++) {
        char *volatile a = malloc(3077);
        char *volatile b = calloc(3, 1093);
        a = realloc(a, 8179);
        free(a);
        free(b);
        COUNT(LIBC);
    }
}

static void map_rounds(int rounds) {
    for (int round = 0; round < rounds; round++) {
        char *p = mmap(0, 9 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED) abort();
        for (int page = 0; page < 9; page++) p[page * 4096] = 1;
        munmap(p, 9 * 4096);
        COUNT(MAPPED);
    }
}

static void (*work)(int) = own_rounds;

static void *thread(void *rounds) { work((int)(size_t)rounds); return 0; }

int main(void) {
    counts = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    void *old[64];
    for (int i = 0; i < 64; i++) old[i] = own_malloc(2000);
    setvbuf(stdout, 0, _IOLBF, 0);
    char command;
    int number;
    while (scanf(" %c %d", &command, &number) == 2) {
        pthread_t threads[16];
        switch (command) {
        case 'k': work = number == 0 ? own_rounds : number == 1 ? libc_rounds : map_rounds; break;
        case 'n': work(number); break;
        case 'w': free(malloc((size_t)number)); break; // uncounted
        case 'o': for (int i = 0; i < number; i++) { own_free(old[i]); old[i] = 0; } break;
        case 't':
            for (int i = 0; i < number; i++) pthread_create(&threads[i], 0, thread, (void *)500);
            for (int i = 0; i < number; i++) pthread_join(threads[i], 0);
            break;
        case 'f':
            if (!fork()) { work(number); _exit(0); }
            wait(0);
            break;
        case 'x':
            if (!fork()) { execl("/bin/true", "true", (char *)0); _exit(1); }
            wait(0);
            break;
        case 'j':
            for (volatile int i = 0; i < number; i++)
                if (!setjmp(failed)) own_malloc(13);
            break;
        }
        for (int i = 0; i < COUNTS; i++) printf("%lu ", counts[i]);
        printf("\n");
    }
    return 0;
}
