// Runs a command at fixed addresses, follows its children, and writes what the kernel says of each process at its exit.
//
//     exitmem OUTPUT COMMAND [ARGUMENT..]
//
// OUTPUT gets one JSON object for each process, in order of exit. Sizes are in KiB, from /proc/PID/smaps while the process
// is stopped at its exit: private anonymous mappings without the main stack (rss, huge), that stack, and hugetlb pages.
// minflt and majflt are faults since the last exec. The last line has the command's status. Signals that end a server (TERM,
// INT, QUIT) go to the command. It shares no code with hksim, whose figures it checks.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES_MAX = 8192 };

struct sizes { unsigned long rss, huge, stack, stack_huge, hugetlb; };
struct process {
    pid_t pid, parent;
    int borrows_memory; // of its parent: vfork without exec
    int is_measured;
    char name[32];
    unsigned long minflt_base, majflt_base, minflt, majflt;
    struct sizes sizes;
};

static struct process processes[PROCESSES_MAX];
static int process_count;
static pid_t command_pid;

static struct process *find(pid_t pid) {
    for (int i = process_count - 1; i >= 0; i--)
        if (processes[i].pid == pid) return &processes[i];
    return NULL;
}

static struct process *add(pid_t pid) {
    if (process_count == PROCESSES_MAX) { fprintf(stderr, "exitmem: more than %d processes\n", PROCESSES_MAX); exit(2); }
    struct process *process = &processes[process_count++];
    process->pid = pid;
    return process;
}

static pid_t group_of(pid_t thread) {
    char path[64], line[256];
    pid_t group = thread;
    snprintf(path, sizeof path, "/proc/%d/status", thread);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "Tgid: %d", &group) == 1) break;
    if (file) fclose(file);
    return group;
}

// The name, the parent and the faults of a process, over all its threads.
static void read_stat(pid_t pid, struct process *process, unsigned long *minflt, unsigned long *majflt) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t bytes = descriptor < 0 ? -1 : read(descriptor, text, sizeof text - 1);
    if (descriptor >= 0) close(descriptor);
    if (bytes <= 0) return;
    text[bytes] = 0;
    char *open_bracket = strchr(text, '('), *close_bracket = strrchr(text, ')');
    if (!open_bracket || !close_bracket) return;
    snprintf(process->name, sizeof process->name, "%.*s", (int)(close_bracket - open_bracket - 1), open_bracket + 1);
    sscanf(close_bracket + 2, "%*c %d %*d %*d %*d %*d %*u %lu %*u %lu", &process->parent, minflt, majflt);
}

static int kind_of(const char *permissions, unsigned long inode, const char *name) {
    if (strstr(name, "anon_hugepage")) return 1;
    if (permissions[3] != 'p') return 0;
    if (inode) return strcmp(name, "/dev/zero") == 0; // its private mappings are anonymous
    if (!strncmp(name, "[vvar", 5) || !strcmp(name, "[vdso]")) return 0;
    return strcmp(name, "[stack]") ? 1 : 2;
}

static void read_smaps(pid_t thread, struct sizes *sizes) {
    char path[64], line[4200];
    snprintf(path, sizeof path, "/proc/%d/smaps", thread);
    FILE *file = fopen(path, "r");
    int kind = 0; // 1 anonymous, 2 main stack
    memset(sizes, 0, sizeof *sizes);
    while (file && fgets(line, sizeof line, file)) {
        unsigned long start, end, offset, inode, value;
        char permissions[8], device[16], name[4096] = "";
        if (sscanf(line, "%lx-%lx %7s %lx %15s %lu %4095s", &start, &end, permissions, &offset, device, &inode, name) >= 6)
            kind = kind_of(permissions, inode, name);
        else if (sscanf(line, "Rss: %lu", &value) == 1) *(kind == 1 ? &sizes->rss : kind == 2 ? &sizes->stack : &(unsigned long){0}) += value;
        else if (sscanf(line, "AnonHugePages: %lu", &value) == 1) *(kind == 1 ? &sizes->huge : kind == 2 ? &sizes->stack_huge : &(unsigned long){0}) += value;
        else if ((sscanf(line, "Private_Hugetlb: %lu", &value) == 1 || sscanf(line, "Shared_Hugetlb: %lu", &value) == 1) && kind == 1) sizes->hugetlb += value;
    }
    if (file) fclose(file);
}

// Each thread of a process stops at its exit, and the last one's figures hold.
static void measure(pid_t thread) {
    struct process *process = find(group_of(thread));
    if (!process || process->borrows_memory) return;
    read_smaps(thread, &process->sizes);
    read_stat(process->pid, process, &process->minflt, &process->majflt);
    process->is_measured = 1;
}

static void handle_event(pid_t thread, int event) {
    unsigned long message = 0;
    ptrace(PTRACE_GETEVENTMSG, thread, 0, &message);
    if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK) {
        add((pid_t)message)->borrows_memory = event == PTRACE_EVENT_VFORK;
    } else if (event == PTRACE_EVENT_EXEC) {
        struct process *process = find(thread);
        if (!process) return;
        process->borrows_memory = 0;
        read_stat(thread, process, &process->minflt_base, &process->majflt_base);
    } else if (event == PTRACE_EVENT_EXIT) {
        measure(thread);
    }
}

// Follows all processes to their ends, and returns the wait status of the command.
static int follow(void) {
    int command_status = 0;
    for (;;) {
        int status;
        pid_t thread = waitpid(-1, &status, __WALL);
        if (thread < 0 && errno == EINTR) continue;
        if (thread < 0) return command_status;
        if (WIFEXITED(status) || WIFSIGNALED(status)) {
            if (thread == command_pid) command_status = status;
            continue;
        }
        int event = status >> 16, signal_number = 0;
        if (event) handle_event(thread, event);
        else signal_number = WSTOPSIG(status);
        ptrace(PTRACE_CONT, thread, 0, signal_number);
    }
}

static void forward(int signal_number) { if (command_pid > 0) kill(command_pid, signal_number); }

static pid_t start(char **command) {
    int gate[2];
    if (pipe2(gate, O_CLOEXEC)) { perror("exitmem: pipe"); exit(2); }
    pid_t pid = fork();
    if (pid < 0) { perror("exitmem: fork"); exit(2); }
    if (!pid) {
        char byte;
        personality(ADDR_NO_RANDOMIZE);
        if (read(gate[0], &byte, 1) != 1) _exit(127);
        execvp(command[0], command);
        perror("exitmem: exec");
        _exit(127);
    }
    long options = PTRACE_O_TRACEEXIT | PTRACE_O_TRACEEXEC | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE;
    if (ptrace(PTRACE_SEIZE, pid, 0, options)) { perror("exitmem: ptrace"); exit(2); }
    add(pid);
    if (write(gate[1], "x", 1) != 1) { perror("exitmem: pipe"); exit(2); }
    close(gate[0]);
    close(gate[1]);
    return pid;
}

int main(int argc, char **argv) {
    if (argc < 3) { fprintf(stderr, "usage: exitmem OUTPUT COMMAND [ARGUMENT..]\n"); return 2; }
    FILE *output = fopen(argv[1], "we");
    if (!output) { perror(argv[1]); return 2; }
    command_pid = start(argv + 2);
    const int forwarded[] = {SIGTERM, SIGINT, SIGQUIT};
    for (int i = 0; i < 3; i++) signal(forwarded[i], forward);
    int status = follow();
    for (int i = 0; i < process_count; i++) {
        const struct process *p = &processes[i];
        if (!p->is_measured) continue;
        fprintf(output, "{\"pid\": %d, \"parent\": %d, \"name\": \"%s\", \"rss\": %lu, \"huge\": %lu, \"stack\": %lu, \"stack_huge\": %lu, "
                "\"hugetlb\": %lu, \"minflt\": %lu, \"majflt\": %lu}\n", p->pid, p->parent, p->name, p->sizes.rss, p->sizes.huge, p->sizes.stack,
                p->sizes.stack_huge, p->sizes.hugetlb, p->minflt - p->minflt_base, p->majflt - p->majflt_base);
    }
    fprintf(output, "{\"status\": %d}\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    return fclose(output) ? 2 : 0;
}
