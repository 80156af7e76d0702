/* Touches blocks in known ways and prints the touches: SIZE PAGE r|w for the first read and the first write of each
   page. Every block has a different size. Arguments: number of threads, and the way in which it ends (exit, kill,
   fork). */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, WAYS = 12, SIZES = 7, THREADS_MAX = 4 };

static const size_t sizes[SIZES] = {100, 700, 2500, 4096, 9000, 70000, 1 << 20};
static FILE *list;
static volatile char sum;
static char *rewritten[THREADS_MAX * SIZES];
static int rewritten_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void note(size_t size, size_t page, char access) { fprintf(list, "%zu %zu %c\n", size, page, access); }

static void touch(size_t name, volatile char *block, size_t at, char access) {
    if (access == 'w')
        block[at] = 1;
    else
        sum += block[at];
    note(name, at / PAGE, access);
}

static void touch_pages(size_t name, char *block, size_t size, size_t step, char access) {
    for (size_t at = 0; at < size; at += step)
        touch(name, block, at, access);
}

struct later {
    size_t size;
    char *block;
};

static void *write_later(void *argument) {
    struct later *later = argument;
    touch_pages(later->size, later->block, later->size, PAGE, 'w');
    return NULL;
}

static void read_into(size_t size, char *block) {
    int zero = open("/dev/zero", O_RDONLY);
    for (size_t done = 0; done < size;) {
        ssize_t got = read(zero, block + done, size - done);
        if (got <= 0)
            _exit(1);
        done += got;
    }
    close(zero);
    for (size_t at = 0; at < size; at += PAGE)
        note(size, at / PAGE, 'w');
}

/* Returns the block, which may have moved. */
static char *use(int way, size_t size, char *block) {
    struct later later = {size, block};
    pthread_t thread;
    switch (way) {
    case 0: break;
    case 1: touch(size, block, 0, 'w'); break;
    case 2: touch_pages(size, block, size, 64, 'w'); break;
    case 3: touch_pages(size, block, size, PAGE, 'r'); break;
    case 4:
        touch_pages(size, block, size, PAGE, 'r');
        touch_pages(size, block, size, PAGE, 'w');
        break;
    case 5: touch_pages(size, block, size, 2 * PAGE, 'w'); break;
    case 6: touch(size, block, size - 1, 'r'); break;
    case 7: read_into(size, block); break;
    case 8:
        if (pthread_create(&thread, NULL, write_later, &later))
            _exit(1);
        pthread_join(thread, NULL);
        break;
    case 9:
        memset(block, 7, size);
        for (size_t at = 0; at < size; at += PAGE)
            note(size, at / PAGE, 'w');
        break;
    case 10: break;
    case 11:
        touch_pages(size, block, size, PAGE, 'w');
        block = realloc(block, 5 * size);
        for (size_t at = 0; at < size; at += PAGE)
            if (block[at] != 1)
                _exit(1);
        touch(size, block, 5 * size - 1, 'w');
        break;
    }
    return block;
}

static void *run(void *argument) {
    size_t number = (size_t)argument;
    for (int which = 0; which < SIZES; which++)
        for (int way = 0; way < WAYS; way++) {
            size_t size = sizes[which] + number * WAYS + way;
            char *block = use(way, size, way == 6 ? calloc(1, size) : malloc(size));
            if (way == 2) {
                pthread_mutex_lock(&lock);
                rewritten[rewritten_count++] = block;
                pthread_mutex_unlock(&lock);
            } else if (way % 2 == 0) {
                free(block);
            }
        }
    return NULL;
}

int main(int argc, char **argv) {
    size_t threads = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
    const char *end = argc > 2 ? argv[2] : "exit";
    static char buffer[1 << 20];
    list = fdopen(dup(1), "w");
    setvbuf(list, buffer, _IOFBF, sizeof buffer);
    pthread_t made[THREADS_MAX];
    for (size_t number = 1; number < threads && number < THREADS_MAX; number++)
        pthread_create(&made[number], NULL, run, (void *)number);
    run((void *)0);
    for (size_t number = 1; number < threads && number < THREADS_MAX; number++)
        pthread_join(made[number], NULL);
    fflush(list);
    if (!strcmp(end, "kill"))
        kill(getpid(), SIGKILL);
    if (!strcmp(end, "fork")) {
        pid_t child = fork();
        for (int at = 0; at < rewritten_count; at++)
            rewritten[at][0] = 2;
        if (child == 0) {
            for (int at = 0; at < rewritten_count; at++)
                free(rewritten[at]);
            _exit(0);
        }
        waitpid(child, NULL, 0);
    }
    return 0;
}
