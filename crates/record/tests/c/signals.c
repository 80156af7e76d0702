// A timer's signal handler allocates while the program allocates. Linked with an allocator that allows this.
// Prints the numbers of rounds of the program and of the handlers. Usage: signals HANDLER_ROUNDS
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

static volatile sig_atomic_t rounds;
static void on_signal(int signal) {
    (void)signal;
    void *volatile p = malloc(505);
    p = realloc(p, 506);
    free(p);
    rounds = rounds + 1;
}
int main(int count, char **word) {
    int wanted = count > 1 ? atoi(word[1]) : 0;
    static char buffer[256];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGALRM, &action, 0);
    struct itimerval timer = {{0, 50}, {0, 50}};
    setitimer(ITIMER_REAL, &timer, 0);
    long own = 0;
    while (rounds < wanted) {
        void *volatile p = malloc(606);
        free(p);
        own++;
    }
    memset(&timer, 0, sizeof timer);
    setitimer(ITIMER_REAL, &timer, 0);
    printf("%ld %d\n", own, (int)rounds);
    return 0;
}
