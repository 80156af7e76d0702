// Accesses that can be counted by reading this file. It is compiled with -O1 and without builtins, so each line of C
// that names a block is one access. argv[1] selects the part that runs. Nothing is written to stdout.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

struct node {
    struct node *next;
    long value;
};

static volatile long sink;

// 100 nodes of 16 bytes: 2 writes and 3 reads each.
static void list(void)
{
    struct node *head = NULL;
    long sum = 0;
    for (int i = 0; i < 100; i++) {
        struct node *node = malloc(sizeof *node);
        node->next = head;
        node->value = i;
        head = node;
    }
    for (struct node *node = head; node; node = node->next)
        sum += node->value;
    while (head) {
        struct node *next = head->next;
        free(head);
        head = next;
    }
    sink = sum;
}

static void blocks(void)
{
    long sum = 0;
    int *array = malloc(4000); // 1000 writes, 1000 reads
    for (int i = 0; i < 1000; i++)
        array[i] = i;
    for (int i = 0; i < 1000; i++)
        sum += array[i];
    char *untouched = malloc(10000); // none
    char *zeroed = calloc(1, 801);   // 1 write: zeroing is the allocator's
    zeroed[5] = 1;
    char *filled = malloc(300); // 300 bytes written, 1 read
    memset(filled, 7, 300);
    sum += filled[17];
    int *moved = malloc(1200); // 1 write, then moved by the allocator, then 1 write and 1 read
    moved[0] = 1;
    char *wall = malloc(24); // prevents growth in place
    moved = realloc(moved, 400000);
    moved[90000] = 2;
    sum += moved[0];
    long *counted = malloc(56); // 1 write; then 3 locked additions, each 2 reads and 1 write to valgrind
    counted[0] = 40;
    for (int i = 0; i < 3; i++)
        __atomic_fetch_add(&counted[0], 1, __ATOMIC_SEQ_CST);
    sink = sum;
    free(array), free(untouched), free(zeroed), free(filled), free(moved), free(wall), free(counted);
}

// The kernel writes 5000 of 6000 bytes and reads 100 of them. Then it reads 70000 bytes in two parts.
static void system_calls(void)
{
    char *buffer = malloc(6000);
    char *large = malloc(70000);
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    struct iovec parts[2] = { { large, 40000 }, { large + 40000, 30000 } };
    if (read(zero, buffer, 5000) != 5000 || write(null, buffer + 10, 100) != 100 || writev(null, parts, 2) != 70000)
        abort();
    free(buffer), free(large);
}

#define ROUNDS 2000

// 2000 blocks of 48 bytes. One thread writes each block (6 words); another thread reads and frees it.
static void *volatile mailbox;

static void *consumer(void *unused)
{
    long sum = 0;
    for (int i = 0; i < ROUNDS; i++) {
        long *block;
        while (!(block = mailbox))
            sched_yield();
        for (int word = 0; word < 6; word++)
            sum += block[word];
        free(block);
        mailbox = NULL;
    }
    sink = sum;
    return NULL;
}

static void threads(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, consumer, NULL);
    for (int i = 0; i < ROUNDS; i++) {
        long *block = malloc(48);
        for (int word = 0; word < 6; word++)
            block[word] = word;
        mailbox = block;
        while (mailbox)
            sched_yield();
    }
    pthread_join(thread, NULL);
}

// Parent and child each write a separate block 10 times.
static void forks(void)
{
    long *inherited = malloc(64);
    pid_t child = fork();
    volatile long *own = malloc(child ? 72 : 88);
    for (int i = 0; i < 10; i++)
        own[3] = i;
    inherited[0] = 1;
    free((void *)own);
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
    free(inherited);
}

// Enough nodes to write the tool's buffer several times. SIGKILL then prevents its last write.
static void killed(void)
{
    int ready[2];
    char byte = 0;
    if (pipe(ready) != 0)
        abort();
    if (fork() == 0) {
        if (read(ready[0], &byte, 1) == 1)
            kill(getppid(), SIGKILL);
        _exit(0);
    }
    for (int i = 0; i < 100; i++)
        list();
    if (write(ready[1], &byte, 1) == 1)
        for (;;)
            pause();
}

int main(int argc, char **argv)
{
    const char *part = argc > 1 ? argv[1] : "";
    if (strcmp(part, "plain") == 0)
        list(), blocks();
    else if (strcmp(part, "system-calls") == 0)
        system_calls();
    else if (strcmp(part, "threads") == 0)
        threads();
    else if (strcmp(part, "forks") == 0)
        forks();
    else if (strcmp(part, "exec") == 0)
        execl(argv[0], argv[0], "plain", (char *)NULL);
    else if (strcmp(part, "kill") == 0)
        killed();
    else
        return 2;
    return 0;
}
