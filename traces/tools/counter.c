/* A bare counter of allocator calls, to check recordings. It shares no code with the recorder.
 *
 *     cc -O2 -fPIC -shared -o counter.so counter.c
 *     LD_PRELOAD=$PWD/counter.so CALL_COUNTER_DIR=/some/dir program
 *
 * Every process image writes a file PID.IMAGE of FILE_BYTES bytes to that directory: the counts (u64, in the order of
 * enum function), then the path of its executable. The counter increments the counts in a shared mapping of the file.
 * So the file is correct up to the last call, whichever way the process ends: exit, _exit, exec, SIGKILL. A forked child
 * starts its own file.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum function {
    MALLOC, CALLOC, REALLOC, REALLOCARRAY, FREE, FREE_NULL, POSIX_MEMALIGN, ALIGNED_ALLOC, MEMALIGN, VALLOC, PVALLOC,
    USABLE_SIZE, FUNCTIONS
};

enum { FILE_BYTES = 4096, IMAGES_MAX = 1000, PATH_BYTES = 4096 };

struct file {
    _Atomic uint64_t calls[FUNCTIONS];
    char executable[FILE_BYTES - FUNCTIONS * sizeof(uint64_t)];
};

/* State that a forked child must not inherit: in the child the kernel replaces it with a page of zeros. */
struct own {
    struct file *file;
};

static struct own *own;
static char directory[PATH_BYTES];

/* The counter has thread-local storage because the recorder has it. For every object with thread-local storage, glibc
 * calls free(NULL) when it releases a thread's stack. */
__attribute__((tls_model("initial-exec"))) __thread char slot_of_counter;

static void give_up(const char *why) {
    ssize_t ignored = write(STDERR_FILENO, why, strlen(why));
    (void)ignored;
    _exit(126);
}

/* The first unused file name for this process id. */
static int create(void) {
    for (int image = 0; image < IMAGES_MAX; image++) {
        char path[PATH_BYTES + 64];
        snprintf(path, sizeof path, "%s/%ld.%d", directory, (long)getpid(), image);
        int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd >= 0 || errno != EEXIST) return fd;
    }
    return -1;
}

static void open_file(void) {
    if (own == NULL) {
        const char *said = getenv("CALL_COUNTER_DIR");
        if (said == NULL || strlen(said) >= sizeof directory) give_up("counter.so: CALL_COUNTER_DIR names no directory\n");
        strcpy(directory, said);
        void *page = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED || madvise(page, FILE_BYTES, MADV_WIPEONFORK) != 0) give_up("counter.so: no page\n");
        own = page;
    }
    int fd = create();
    if (fd < 0 || ftruncate(fd, FILE_BYTES) != 0) give_up("counter.so: CALL_COUNTER_DIR cannot be written\n");
    struct file *file = mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED) give_up("counter.so: no mapping\n");
    close(fd);
    ssize_t length = readlink("/proc/self/exe", file->executable, sizeof file->executable - 1);
    if (length < 0) file->executable[0] = 0;
    own->file = file;
}

static void count(enum function function) {
    if (own == NULL || own->file == NULL) {
        int kept = errno;
        open_file();
        errno = kept;
    }
    atomic_fetch_add_explicit(&own->file->calls[function], 1, memory_order_relaxed);
}

/* The next definition of a function after this one. dlsym identifies its caller by the return address, so the check also
 * prevents a tail call of dlsym. */
#define NEXT(name) ({ \
    static __typeof__(&name) next; \
    if (next == NULL && (next = dlsym(RTLD_NEXT, #name)) == NULL) give_up("counter.so: no " #name "\n"); \
    next; })

void *malloc(size_t size) {
    count(MALLOC);
    return NEXT(malloc)(size);
}

void *calloc(size_t n, size_t size) {
    count(CALLOC);
    return NEXT(calloc)(n, size);
}

void *realloc(void *block, size_t size) {
    count(REALLOC);
    return NEXT(realloc)(block, size);
}

/* glibc's reallocarray calls realloc, so a call would be counted twice. */
void *reallocarray(void *block, size_t n, size_t size) {
    size_t bytes;
    count(REALLOCARRAY);
    if (__builtin_mul_overflow(n, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return NEXT(realloc)(block, bytes);
}

void free(void *block) {
    count(block == NULL ? FREE_NULL : FREE);
    NEXT(free)(block);
}

int posix_memalign(void **block, size_t alignment, size_t size) {
    count(POSIX_MEMALIGN);
    return NEXT(posix_memalign)(block, alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size) {
    count(ALIGNED_ALLOC);
    return NEXT(aligned_alloc)(alignment, size);
}

extern void *memalign(size_t, size_t);
void *memalign(size_t alignment, size_t size) {
    count(MEMALIGN);
    return NEXT(memalign)(alignment, size);
}

void *valloc(size_t size) {
    count(VALLOC);
    return NEXT(valloc)(size);
}

extern void *pvalloc(size_t);
void *pvalloc(size_t size) {
    count(PVALLOC);
    return NEXT(pvalloc)(size);
}

extern size_t malloc_usable_size(void *);
size_t malloc_usable_size(void *block) {
    count(USABLE_SIZE);
    return NEXT(malloc_usable_size)(block);
}
