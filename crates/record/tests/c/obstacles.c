// A program in a state in which it cannot be recorded. It says when it is ready, and waits until its input ends.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

static void *waits(void *none) { pause(); return none; }

int main(int count, char **words) {
    const char *state = count > 1 ? words[1] : "";
    char byte;
    if (!strcmp(state, "filter")) {
        struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
        struct sock_fprog program = {1, &allow};
        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 1;
    } else if (!strcmp(state, "strict")) {
        if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) return 1;
    } else if (!strcmp(state, "undumpable")) {
        if (prctl(PR_SET_DUMPABLE, 0)) return 1;
    } else if (!strcmp(state, "thread")) {
        pthread_t thread;
        if (pthread_create(&thread, 0, waits, 0)) return 1;
    }
    if (write(1, "r", 1) != 1) return 1;
    while (read(0, &byte, 1) == 1) {}
    // All that the strict mode permits, and no call of an allocator function.
    syscall(SYS_exit, 0);
}
