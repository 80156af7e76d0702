// Runs a phase for each byte of its input: 5 blocks of 1000 + phase bytes, and 200000 short-lived ones of 2000 + phase in
// each of two threads. Replies with its process id. Ends when its input does. Usage: phases IN OUT
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

static void *churn(void *size) {
    for (int i = 0; i < 200000; i++) { char *volatile p = malloc((uintptr_t)size); if (!p) abort(); free(p); }
    return 0;
}

int main(int count, char **word) {
    if (count < 3) return 2;
    int in = open(word[1], O_RDONLY), out = open(word[2], O_WRONLY);
    char byte;
    for (uintptr_t phase = 1; read(in, &byte, 1) == 1; phase++) {
        pthread_t thread;
        for (int i = 0; i < 5; i++) if (!malloc(1000 + phase)) return 1;
        if (pthread_create(&thread, 0, churn, (void *)(2000 + phase))) return 1;
        churn((void *)(2000 + phase));
        if (pthread_join(thread, 0)) return 1;
        int pid = getpid();
        if (write(out, &pid, sizeof pid) != sizeof pid) return 1;
    }
    return 0;
}
