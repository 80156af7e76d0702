/* Forks children. The sizes that it allocates state whether a child shares the memory: malloc(1000 + n) means that the
 * n-th child of the mode must share it now, malloc(2000 + n) that it must not. The program pauses between a fork and
 * the next statement, and before and after the end of a child, so that the recorder can detect each change. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void pause_ms(int ms) { usleep(ms * 1000); }

static void shares(int child) { free(malloc(1000 + child)); }
static void is_gone(int child) { free(malloc(2000 + child)); }

static int *to_child(int ends[2]) {
    if (pipe2(ends, O_CLOEXEC) != 0) exit(9);
    return ends;
}

/* Returns when the other end is closed. */
static void wait_for_close(int fd) {
    char byte;
    while (read(fd, &byte, 1) > 0) {}
}

/* A child that waits until its pipe is closed, and then ends in the given way. */
static pid_t child(int pipe_ends[2], const char *end) {
    to_child(pipe_ends);
    pid_t pid = fork();
    if (pid != 0) {
        close(pipe_ends[0]);
        return pid;
    }
    close(pipe_ends[1]);
    wait_for_close(pipe_ends[0]);
    if (!strcmp(end, "exec")) execl("/bin/sleep", "sleep", "0.4", (char *)0);
    if (!strcmp(end, "kill")) raise(SIGKILL);
    if (!strcmp(end, "grandchild")) {
        if (fork() == 0) pause_ms(400);
    }
    if (!strcmp(end, "closes")) {
        for (int fd = 0; fd < 2000; fd++) close(fd);
        pause_ms(300);
    }
    _exit(0);
}

static void one(const char *end) {
    int ends[2];
    pid_t pid = child(ends, end);
    shares(1);
    pause_ms(50);
    shares(1);
    close(ends[1]);
    if (!strcmp(end, "grandchild")) {
        waitpid(pid, 0, 0);
        pause_ms(100);
        shares(1);
        pause_ms(600);
    } else if (!strcmp(end, "exec")) {
        pause_ms(250); /* It runs another program now. */
    } else if (!strcmp(end, "closes")) {
        pause_ms(100);
        shares(1);
        waitpid(pid, 0, 0);
        pause_ms(250);
    } else {
        waitpid(pid, 0, 0);
        pause_ms(250);
    }
    is_gone(1);
    while (wait(0) > 0) {}
    is_gone(1);
}

/* Two children at the same time; the first lives longer. */
static void two(void) {
    int first[2], second[2];
    pid_t pid_first = child(first, "exit");
    pid_t pid_second = child(second, "exit");
    shares(1);
    shares(2);
    close(second[1]);
    waitpid(pid_second, 0, 0);
    pause_ms(250);
    shares(1);
    is_gone(2);
    close(first[1]);
    waitpid(pid_first, 0, 0);
    pause_ms(250);
    is_gone(1);
    is_gone(2);
}

/* Many short-lived children, some of them by vfork, which shares all memory and copies nothing. */
static void many(void) {
    for (int n = 0; n < 200; n++) {
        pid_t pid = n % 4 == 3 ? vfork() : fork();
        if (pid == 0) _exit(0);
        waitpid(pid, 0, 0);
    }
    pause_ms(250);
    is_gone(1);
}

/* A child that outlives its parent. */
static void outlives(void) {
    pid_t pid = fork();
    if (pid == 0) {
        pause_ms(1500);
        _exit(0);
    }
    shares(1);
    pause_ms(20);
    shares(1);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "";
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* So that this process can also wait for grandchildren. */
    if (!strcmp(mode, "two")) two();
    else if (!strcmp(mode, "many")) many();
    else if (!strcmp(mode, "outlives")) outlives();
    else one(mode);
    return 0;
}
