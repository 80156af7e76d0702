// A server that gives up root's rights: the calls before and after, in its children, and in a program that it executes.
#define _GNU_SOURCE
#include <grp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void calls(size_t bytes) {
    for (int i = 0; i < 100; i++) free(malloc(bytes));
}

static void become_nobody(void) {
    if (setgroups(0, 0) || setgid(65534) || setuid(65534)) _exit(3);
}

static void await(pid_t child) {
    int status = -1;
    if (waitpid(child, &status, 0) != child || status != 0) _exit(4);
}

int main(int count, char **words) {
    if (count > 1 && strcmp(words[1], "executed") == 0) {
        calls(5005);
        return 0;
    }
    calls(5001);
    pid_t worker = fork();
    if (worker == 0) {
        become_nobody();
        calls(5002);
        pid_t child = fork();
        if (child == 0) {
            calls(5003);
            _exit(0);
        }
        await(child);
        child = fork();
        if (child == 0) execl(words[0], words[0], "executed", (char *)0);
        await(child);
        _exit(0);
    }
    await(worker);
    become_nobody();
    calls(5004);
    pid_t last = fork();
    if (last == 0) {
        calls(5006);
        _exit(0);
    }
    await(last);
    return 0;
}
