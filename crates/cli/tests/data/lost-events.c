// Stops its recorder, allocates and touches ROUNDS blocks of BYTES, continues the recorder by a helper, and ends.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    int ends[2], begun[2];
    char byte = 0;
    pid_t recorder = getppid();
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    // On one processor, so that one ring gets all events.
    if (count != 3 || pipe(ends) != 0 || pipe(begun) != 0 || sched_setaffinity(0, sizeof one, &one) != 0)
        return 1;
    if (fork() == 0) {
        close(ends[1]);
        write(begun[1], &byte, 1);
        // Until the program has ended.
        read(ends[0], &byte, 1);
        kill(recorder, SIGCONT);
        _exit(0);
    }
    // A recorder that traces processes holds the helper until it has seen it, so it must not be stopped before.
    close(begun[1]);
    if (read(begun[0], &byte, 1) != 1)
        return 1;
    close(ends[0]);
    size_t bytes = strtoul(arguments[1], 0, 0);
    long rounds = atol(arguments[2]);
    // A recorder that stops the program at each call would hold it here, so this call comes first.
    char *volatile block = malloc(bytes);
    kill(recorder, SIGSTOP);
    for (long round = 0; round < rounds; round++) {
        for (size_t at = 0; at < bytes; at += 4096)
            block[at] = 1;
        if (round + 1 < rounds) {
            free(block);
            block = malloc(bytes);
        }
    }
    return 0;
}
