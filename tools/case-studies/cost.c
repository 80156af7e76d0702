/* Runs a command and writes what it cost to a file: "minor faults, peak RSS in KiB, user us, system us".
 *
 *     cost FILE COMMAND [ARGUMENT...]
 *     cost --start FILE COMMAND [ARGUMENT...]    what this process cost so far; then COMMAND replaces it
 *
 * A process keeps its counters when it executes another program. `--start` separates the costs of `hksim run` from those of
 * the program that replaces it: cost FILE hksim run DESIGN -- cost --start FILE2 COMMAND.
 *
 * A small program in C: the peak RSS of a child starts with that of its parent. SIGTERM is passed on. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile pid_t child;

static void pass_on(int number) {
    if (child > 0) kill(child, number);
}

static int write_usage(const char *path, const struct rusage *usage) {
    FILE *file = fopen(path, "w");
    if (!file) return 2;
    long long user = usage->ru_utime.tv_sec * 1000000LL + usage->ru_utime.tv_usec;
    long long system = usage->ru_stime.tv_sec * 1000000LL + usage->ru_stime.tv_usec;
    fprintf(file, "%ld %ld %lld %lld\n", usage->ru_minflt, usage->ru_maxrss, user, system);
    return fclose(file) ? 2 : 0;
}

int main(int argc, char **argv) {
    if (argc > 3 && strcmp(argv[1], "--start") == 0) {
        struct rusage so_far;
        if (getrusage(RUSAGE_SELF, &so_far) || write_usage(argv[2], &so_far)) return 2;
        execvp(argv[3], argv + 3);
        return 127;
    }
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
    if (write_usage(argv[1], &usage)) return 2;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
