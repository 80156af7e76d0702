/* Answers each line with the number of lines so far, while its threads map, touch and unmap memory, sleep in calls that
 * ptrace interrupts, and get signals. */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static volatile unsigned long signals;

static void count(int signal) {
    (void)signal;
    signals++;
}

static void *churn(void *unused) {
    struct timespec pause = {0, 200000};
    (void)unused;
    for (;;) {
        size_t bytes = (1 + rand() % 64) * 4096;
        char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) _exit(3);
        memset(memory, 1, bytes);
        if (munmap(memory, bytes)) _exit(4);
        if (nanosleep(&pause, NULL)) _exit(5); /* restarted, not interrupted */
    }
}

static void *spin(void *unused) {
    unsigned long value = 1;
    (void)unused;
    for (;;) {
        for (int round = 0; round < 100000; round++) value = value * 3 + 1;
        if (value == 0) _exit(6);
        poll(NULL, 0, 1);
    }
}

int main(void) {
    pthread_t thread;
    char line[100];
    unsigned long answers = 0;
    sigset_t blocked;
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    signal(SIGUSR2, SIG_IGN);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGHUP);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    for (int number = 0; number < 3; number++) pthread_create(&thread, NULL, churn, NULL);
    pthread_create(&thread, NULL, spin, NULL);
    while (fgets(line, sizeof line, stdin)) {
        raise(SIGUSR1);
        if (signals != ++answers) return 7;
        printf("%lu\n", answers);
        fflush(stdout);
    }
    return 0;
}
