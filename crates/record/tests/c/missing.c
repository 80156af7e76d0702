// Starts a child that the recorder cannot see: `clear` and `other` execute this program with a cleared environment or
// another LD_PRELOAD, `static` executes the program FILE, and with `outlive` the child allocates when the parent has ended.
// Usage: missing CASE [FILE]; `missing work` only allocates.
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void work(void) {
    for (int i = 0; i < 1000; i++) free(malloc(777));
}

int main(int count, char **words) {
    const char *how = count > 1 ? words[1] : "";
    if (strcmp(how, "work") == 0) {
        work();
        return 0;
    }
    pid_t child = fork();
    if (child == 0) {
        const char *file = count > 2 ? words[2] : words[0];
        if (strcmp(how, "clear") == 0) clearenv();
        if (strcmp(how, "other") == 0) setenv("LD_PRELOAD", "libm.so.6", 1);
        if (strcmp(how, "outlive") != 0) execl(file, file, "work", (char *)0);
        sleep(5);
        work();
        _exit(0);
    }
    free(malloc(555));
    if (strcmp(how, "outlive") != 0) waitpid(child, 0, 0);
    return 0;
}
