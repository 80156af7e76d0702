/* Runs a command and writes what it cost to a file: "minor faults, peak RSS in KiB, user us, system us".
 *
 *     cost FILE COMMAND [ARGUMENT...]
 *
 * A small program in C: the peak RSS of a child starts with that of its parent. SIGTERM is passed on. */
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile pid_t child;

static void pass_on(int number) {
    if (child > 0) kill(child, number);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    child = fork();
    if (child < 0) return 2;
    if (child == 0) {
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    int status;
    struct rusage usage;
    if (wait4(child, &status, 0, &usage) != child) return 2;
    FILE *file = fopen(argv[1], "w");
    if (!file) return 2;
    long long user = usage.ru_utime.tv_sec * 1000000LL + usage.ru_utime.tv_usec;
    long long system = usage.ru_stime.tv_sec * 1000000LL + usage.ru_stime.tv_usec;
    fprintf(file, "%ld %ld %lld %lld\n", usage.ru_minflt, usage.ru_maxrss, user, system);
    if (fclose(file)) return 2;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
