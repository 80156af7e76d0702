#!/usr/bin/env python3
"""Runs random C programs under real memory limits, and compares with what hksim predicts for their recordings.

    tools/memory-limits/run.py [--programs 30] [--seed 1] [--hksim target/release/hksim] [--keep FOLDER]

Needs root, a C compiler, and the memory controller (cgroup v1, or v2 at its root). Each program is recorded once; then it
runs in a group from before exec, on one CPU, with fixed addresses, under five limits: the predicted least limit plus and
minus 3 pages, three quarters and half of it, and a random larger one. The kernel's memory for a process is found first,
with a program that does nothing, and added to each limit; that for children, which the kernel returns some time after their
end, is found with a program that forks, and added to the first limit of programs that fork.

Programs map, write, give up (MADV_FREE, MADV_DONTNEED), advise, protect and unmap memory, call malloc, and every third one
forks. Prints the seed and a table; `?` marks outcomes that depend on writes after MADV_FREE, which no recording has: either
is right then. Exits with status 1 if an outcome is not as predicted.
"""

import argparse
import ctypes
import itertools
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = 4096
ADDR_NO_RANDOMIZE = 0x0040000
SECONDS_MAX = 60

HEAD = """
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#define P 4096ul
static char *area[8];
static void *block[64];
// A call that fails at the limit ends the program: it does not survive.
static void need(int succeeds) {
    if (!succeeds) _exit(9);
}
static char *map(unsigned long pages) {
    char *at = mmap(0, pages * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    need(at != MAP_FAILED);
    return at;
}
static void advise(char *at, unsigned long pages, int advice) { need(!madvise(at, pages * P, advice)); }
static void protect(char *at, unsigned long pages) {
    need(!mprotect(at, pages * P, PROT_READ) && !mprotect(at, pages * P, PROT_READ | PROT_WRITE));
}
static void allocate(unsigned long bytes) {
    for (int number = 0; number < 64; number++) {
        free(block[number]);
        need((block[number] = calloc(1, bytes)) != 0);
    }
}
// 0 in a child. The parent waits for it first.
static int forked(void) {
    int status = 0, child = fork();
    need(child >= 0);
    if (child) need(wait(&status) == child && status == 0);
    return child;
}
static void fill(char *at, unsigned long from, unsigned long to, unsigned long step) {
    for (unsigned long page = from; page < to; page += step) ((volatile char *)at)[page * P] = 1;
}
int main(void) {
    (void)area; (void)map; (void)fill; (void)advise; (void)protect; (void)allocate; (void)forked;
"""


def program(draw, forks):
    """The text of a random program."""
    lines, pages = [], []
    for number in range(draw.randint(1, 5)):
        pages.append(draw.choice([64, 300, 512, 1100, 2048, 3000]))
        lines.append(f"area[{number}] = map({pages[-1]});")

    def part():
        area = draw.randrange(len(pages))
        start = draw.randrange(pages[area])
        return area, start, draw.randint(start + 1, pages[area])

    def operation():
        area, start, end = part()
        at = f"area[{area}] + {start} * P, {end - start}"
        return draw.choice([
            lambda: f"fill(area[{area}], {start}, {end}, {draw.choice([1, 1, 1, 2, 7])});",
            lambda: f"fill(area[{area}], {start}, {end}, 1);",
            lambda: f"advise({at}, {draw.choice(['MADV_FREE', 'MADV_DONTNEED', 'MADV_HUGEPAGE'])});",
            lambda: f"fill(area[{area}], 0, {end}, 1); advise(area[{area}], {end}, MADV_FREE); fill(area[{area}], 0, {start}, 1);",
            lambda: f"protect({at});",
            lambda: f"allocate({draw.choice([100, 5000, 90000])});",
        ])()

    def child():
        body = " ".join(operation() for _ in range(draw.randint(1, 3)))
        return f"if (!forked()) {{ {body} _exit(0); }}"

    for number in range(draw.randint(4, 14)):
        lines.append(child() if forks and number % 4 == 3 else operation())
    return HEAD + "".join(f"    {line}\n" for line in lines) + "    return 0;\n}\n"


class Group:
    """A memory control group with a limit, without swap. One for each run: a run leaves charges of the kernel behind."""

    numbers = itertools.count()

    def __init__(self, limit_bytes):
        mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text().splitlines()]
        first = [mount[1] for mount in mounts if mount[2] == "cgroup" and "memory" in mount[3].split(",")]
        second = [mount[1] for mount in mounts if mount[2] == "cgroup2"]
        if not first and not second:
            sys.exit("no memory control groups are mounted")
        self.v1 = bool(first)
        self.folder = pathlib.Path((first + second)[0], f"hksim-memory-limits-{os.getpid()}-{next(Group.numbers)}")
        self.folder.mkdir()
        self.write(*(("memory.swappiness", 0) if self.v1 else ("memory.swap.max", 0)))
        self.write("memory.limit_in_bytes" if self.v1 else "memory.max", limit_bytes)

    def write(self, name, value):
        (self.folder / name).write_text(str(value))

    def kills(self):
        text = (self.folder / ("memory.oom_control" if self.v1 else "memory.events")).read_text()
        return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("oom_kill "))

    def survives(self, path):
        """Whether no process of a program is killed."""

        def prepare():
            os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
            ctypes.CDLL(None).personality(ADDR_NO_RANDOMIZE)
            self.write("cgroup.procs", os.getpid())

        # A process whose exec does not fit ends by another signal, without a kill that is counted.
        code = subprocess.run([path], preexec_fn=prepare, timeout=SECONDS_MAX, check=False).returncode
        return code == 0 and self.kills() == 0

    def remove(self):
        for _ in range(500):
            try:
                return self.folder.rmdir()
            except OSError:
                time.sleep(0.01)


def survives(path, limit_bytes):
    """Whether a program survives a limit."""
    group = Group(limit_bytes)
    try:
        return group.survives(path)
    finally:
        group.remove()


class Trial:
    """A program with its recording."""

    def __init__(self, hksim, folder, name, text):
        self.hksim, self.path, self.recording = hksim, folder / name, folder / f"{name}.hkm"
        source = folder / f"{name}.c"
        source.write_text(text)
        subprocess.run(["cc", "-O1", "-o", self.path, source], check=True)
        record = [hksim, "record", "--memory", "--no-aslr", "-o", self.recording, "--", self.path]
        subprocess.run(record, check=True, capture_output=True)

    def predicted(self, limit_bytes):
        line = [self.hksim, "sim", self.recording, "--kernel", "host", "--memory-limit", str(limit_bytes), "--format", "json"]
        return json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)


FORKING = "for (int child = 0; child < 3; child++) if (!forked()) { fill(map(200), 0, 200, 1); _exit(0); }"


def kernel_pages(trial):
    """The pages that the kernel needs for the processes of a program besides what is predicted."""
    predicted = trial.predicted(1 << 30)["memory_limit"]["least_limit_bytes"] // PAGE
    low, high = predicted // 2, predicted + 1000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if survives(trial.path, middle * PAGE) else (middle, high)
    return high - predicted


def limits(draw, least, children):
    """The limits of a program, in pages. `children`: what the kernel may need for children."""
    return [least + 3 + children, least - 3, least * 3 // 4, least // 2, least + 4 + draw.randrange(least)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hksim", type=pathlib.Path, default=ROOT / "target/release/hksim")
    parser.add_argument("--keep", type=pathlib.Path, help="keep programs and recordings in this folder")
    args = parser.parse_args()
    folder = args.keep or pathlib.Path(tempfile.mkdtemp(prefix="hksim-memory-limits-"))
    folder.mkdir(exist_ok=True)
    counts = {"as predicted": 0, "either is right": 0, "WRONG": 0}
    own = kernel_pages(Trial(args.hksim, folder, "nothing", HEAD + "return 0;\n}\n"))
    children = kernel_pages(Trial(args.hksim, folder, "forking", HEAD + FORKING + "return 0;\n}\n")) - own
    print(f"seed {args.seed}; the kernel needs {own} pages for a process, and {children} for children")
    print("| Program | Least limit, pages | least + 3 | least - 3 | 3/4 | 1/2 | larger |\n|---|---|---|---|---|---|---|")
    for number in range(args.programs):
        draw = random.Random(f"{args.seed} {number}")
        forks = number % 3 == 2
        trial = Trial(args.hksim, folder, f"program-{number}", program(draw, forks))
        result = trial.predicted(1 << 40)
        least = result["memory_limit"]["least_limit_bytes"] // PAGE
        lowest = result.get("unseen_writes", {}).get("least_limit_bytes_min")
        cells = []
        for limit in limits(draw, least, children if forks else 0):
            outcome = trial.predicted(limit * PAGE)["memory_limit"]["outcome"]
            real = "survives" if survives(trial.path, (limit + own) * PAGE) else "killed"
            kind = "either is right" if outcome == "unknown" else "as predicted" if outcome == real else "WRONG"
            counts[kind] += 1
            cells.append(real + {"as predicted": "", "either is right": "?", "WRONG": f" (predicted: {outcome})"}[kind])
        low = f"{lowest // PAGE} to " if lowest else ""
        print(f"| {number}{', forks' if forks else ''} | {low}{least} | {' | '.join(cells)} |", flush=True)
    print(", ".join(f"{count} {words}" for words, count in counts.items()))
    return 1 if counts["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
