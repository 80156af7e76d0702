/* timed FILE COMMAND...: runs a command, and writes its wall-clock seconds and its CPU seconds, children included, to FILE.
 * If the recorder starts `timed`, the recorder's work before and after the command is not included. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile pid_t child;

static void pass_on(int signal) {
    if (child > 0) kill(child, signal);
}

static double seconds(struct timeval time) { return time.tv_sec + time.tv_usec * 1e-6; }

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    struct sigaction action = {.sa_handler = pass_on, .sa_flags = SA_RESTART};
    sigaction(SIGTERM, &action, NULL);
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    child = fork();
    if (child == 0) {
        signal(SIGTERM, SIG_DFL);
        execvp(argv[2], argv + 2);
        _exit(127);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return 2;
    clock_gettime(CLOCK_MONOTONIC, &ended);
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    FILE *file = fopen(argv[1], "w");
    if (file == NULL) return 2;
    double elapsed = ended.tv_sec - begun.tv_sec + (ended.tv_nsec - begun.tv_nsec) * 1e-9;
    fprintf(file, "%.6f %.6f\n", elapsed, seconds(usage.ru_utime) + seconds(usage.ru_stime));
    if (fclose(file) != 0) return 2;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
