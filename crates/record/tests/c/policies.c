// Changes memory policies between calls of malloc, through every function of the C library.
// Usage: policies calls [READY GO]|quiet PROGRAM...   (quiet: sets THP_DISABLE, forks a child that allocates, and becomes PROGRAM)
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void step(size_t bytes) { free(malloc(bytes)); }

// The kernel's reports: THP_DISABLE, and whether a new mapping is locked.
static void tell(void) {
    char *fresh = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned char present = 0;
    mincore(fresh, 4096, &present);
    printf("%d %d %x\n", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0), present & 1, personality(0xffffffff));
    munmap(fresh, 4096);
}

int main(int count, char **words) {
    if (count > 2 && !strcmp(words[1], "quiet")) {
        if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)) return 1;
        pid_t child = fork();
        if (child == 0) { step(301); _exit(0); }
        int status;
        if (waitpid(child, &status, 0) != child || status) return 1;
        execv(words[2], words + 2);
        return 1;
    }
    setvbuf(stdout, 0, _IONBF, 0);
    step(101);
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)) return 2;
    tell();
    step(102);
    if (syscall(SYS_prctl, PR_SET_THP_DISABLE, 0, 0, 0, 0)) return 3;
    tell();
    step(103);
    // The kernel refuses these calls, so they give no event.
    if (prctl(PR_SET_THP_DISABLE, 1, 1UL << 40, 0, 0) != -1 || mlockall(MCL_ONFAULT) != -1) return 4;
    if (prctl(PR_SET_NAME, "policies", 0, 0, 0) || personality(0xffffffff) == -1) return 5;
    step(104);
    if (mlockall(MCL_FUTURE)) return 77;
    tell();
    step(105);
    if (syscall(SYS_munlockall)) return 6;
    tell();
    step(106);
    if (personality(personality(0xffffffff) | ADDR_NO_RANDOMIZE) == -1) return 7;
    tell();
    step(107);
    if (count > 3) {
        // Writes the process id to one file, and continues when another file exists.
        FILE *ready = fopen(words[2], "w");
        fprintf(ready, "%d\n", getpid());
        fclose(ready);
        while (access(words[3], F_OK)) usleep(1000);
        step(108);
    }
    return 0;
}
