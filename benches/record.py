#!/usr/bin/env python3
"""The cost of recording: hksim compared with other recorders on the same programs.

    cargo build --release -p hksim && benches/record.py

Builds the C programs of benches/record/. Each round runs every recorder on every workload once, one after the other, so
that a disturbance affects all recorders alike. Recorders:

    bare        no recorder
    counter     counts calls (counter.c): the minimum cost of any preloaded recorder
    raw 16 B    writes 16 bytes per call into files, uncompressed (raw_logger.c)
    hksim       hksim record
    hksim, 16   hksim record with its default, --clock 16 (single-threaded workloads only: `main` and json)
    heaptrack   heaptrack -r (with call stacks, because it has no other mode)
    memray      memray run (Python programs only; with Python's stacks)

The workloads are random_mixed (random_mixed.c) with 400, 100 000 and 1 000 000 slots, in 1, 2 and 4 threads besides the
main thread or in the main thread alone (`ws=400 main`), and a Python program that loads JSON (json_load.py). All figures
are ns per event in excess of the bare run of the same round: median and [least, most] of all rounds.

    loop CPU, loop wall    the cost while the program runs: times that the program measures for its own loop
    all CPU, all wall      times of all processes from start to end, with start-up, helper processes and conversion
    B/event                bytes of the finished trace per event

Takes several minutes. The files (several GB for the raw logger) are created in --dir and removed. A tool that is not
installed is skipped, with a message.
"""
import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "record"
ROOT = HERE.parent


class Run:
    """The times of one run in ns: of the program's own loop, and of the whole run."""

    def __init__(self, loop_cpu, loop_wall, all_cpu, all_wall, trace_bytes):
        self.figures = (loop_cpu, loop_wall, all_cpu, all_wall)
        self.trace_bytes = trace_bytes


class Workload:
    """A program. `threads` is the number of threads besides the main thread."""

    def __init__(self, name, words, events, threads, environment=None, python=False):
        self.name, self.words, self.events, self.threads = name, [str(word) for word in words], events, threads
        self.environment, self.python = environment or {}, python

    def loop_ns(self, printed):
        """CPU and wall-clock ns of the loop (of its slowest thread), from the program's output."""
        words = printed.split()
        if self.python:
            return float(words[0]), float(words[1])
        return float(words[1]) * self.events, float(words[2]) * self.events


def execute(words, environment, printed):
    """Runs a command; (CPU ns of it and all children it waited for, wall-clock ns)."""
    with open(printed, "w") as out:
        start = time.monotonic_ns()
        child = subprocess.Popen(words, stdout=out, stderr=subprocess.PIPE, env={**os.environ, **environment})
        errors = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        wall_ns = time.monotonic_ns() - start
        child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(words)}: ended with {child.returncode}\n{errors.decode(errors='replace')}")
    return (usage.ru_utime + usage.ru_stime) * 1e9, wall_ns


class Recorder:
    """How a workload is run: words before it, environment, the files of the trace."""

    def __init__(self, name, words=(), environment=None, trace=None, module=(), one_thread_only=False):
        self.name, self.words, self.environment = name, list(words), environment or {}
        # `module`: words inserted between a Python workload's interpreter and its script.
        self.trace, self.module, self.one_thread_only = trace, list(module), one_thread_only

    def takes(self, workload):
        return (workload.python or not self.module) and (workload.threads == 0 or not self.one_thread_only)

    def run(self, workload, directory):
        printed = directory / "printed"
        command = [workload.words[0], *self.module, *workload.words[1:]] if self.module else workload.words
        environment = {**workload.environment, **self.environment}
        all_cpu, all_wall = execute(self.words + command, environment, printed)
        loop = workload.loop_ns(last_figures(printed))
        files = list(directory.glob(self.trace)) if self.trace else []
        trace_bytes = sum(file.stat().st_size for file in files)
        for file in files:
            file.unlink()
        return Run(*loop, all_cpu, all_wall, trace_bytes)


def last_figures(printed):
    """The line with the program's figures. Some recorders print other lines."""
    lines = [line for line in printed.read_text().splitlines() if len(line.split()) == 3]
    figures = [line for line in lines if all(word.replace(".", "").isdigit() for word in line.split())]
    return figures[-1]


def compile_into(directory):
    def cc(output, source, *flags):
        subprocess.run(["cc", "-O2", "-o", directory / output, SOURCES / source, *flags], check=True)

    cc("random_mixed", "random_mixed.c", "-pthread")
    for name in ("counter", "raw_logger"):
        cc(f"{name}.so", f"{name}.c", "-shared", "-fPIC")


def has_memray(python):
    found = subprocess.run([python, "-c", "import memray"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return found.returncode == 0


def find_python():
    """A Python interpreter (not a script that starts one), if possible one with memray."""
    found = []
    for name in (shutil.which("python3"), shutil.which("python3", path="/usr/bin"), sys.executable):
        if name:
            itself = subprocess.run([name, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True)
            found += itself.stdout.split()
    return next((python for python in found if has_memray(python)), found[0] if found else None)


def recorders(directory, hksim, python, wanted):
    output = str(directory / "trace.hkt")
    every = [
        Recorder("bare"),
        Recorder("counter", environment={"LD_PRELOAD": str(directory / "counter.so")}),
        Recorder(
            "raw 16 B",
            environment={"LD_PRELOAD": str(directory / "raw_logger.so"), "RAW_LOG": str(directory / "raw")},
            trace="raw.*",
        ),
        Recorder("hksim", [hksim, "record", "--clock", "every", "-o", output, "--"], trace="trace*.hkt"),
    ]
    every.append(
        Recorder(
            "hksim, 16", [hksim, "record", "--clock", "16", "-o", output, "--"], trace="trace*.hkt", one_thread_only=True
        )
    )
    if not wanted or "heaptrack" in wanted:
        if shutil.which("heaptrack"):
            every.append(Recorder("heaptrack", ["heaptrack", "-r", "-o", str(directory / "heap")], trace="heap*"))
        else:
            print("skipped: heaptrack is not installed (apt install heaptrack)")
    if not wanted or "memray" in wanted:
        if python is not None and has_memray(python):
            words = ["-m", "memray", "run", "-q", "-f", "-o", str(directory / "memray.bin")]
            every.append(Recorder("memray", module=words, trace="memray.bin"))
        else:
            print("skipped: memray is not installed (pip install memray)")
    return [recorder for recorder in every if not wanted or recorder.name in wanted or recorder.name == "bare"]


def json_events(words, environment, directory):
    """Number of events of the loads alone: a run with loads minus a run without loads."""
    counts = []
    for loads in (words[-1], "0"):
        file = directory / "count"
        counting = {**environment, "LD_PRELOAD": str(directory / "counter.so"), "COUNT_FILE": str(file)}
        execute([*words[:-1], loads], counting, directory / "printed")
        counts.append(int(file.read_text()))
    return counts[0] - counts[1]


def workloads(directory, events, python, wanted):
    every = []
    program = directory / "random_mixed"
    for slots, name in ((400, "400"), (100_000, "100k"), (1_000_000, "1M")):
        for threads in (0, 1, 2, 4):
            cycles = events // max(1, threads)
            how = f"x{threads}" if threads else "main"
            every.append(Workload(f"ws={name} {how}", [program, cycles, slots, threads], cycles * max(1, threads), threads))
    every = [workload for workload in every if not wanted or workload.name in wanted]
    if not wanted or "json" in wanted:
        if python is None:
            print("skipped: python3 is not installed (apt install python3)")
        else:
            environment = {"PYTHONMALLOC": "malloc", "PYTHONHASHSEED": "0"}
            words = [python, str(SOURCES / "json_load.py"), str(max(1, events // 600_000))]
            every.append(Workload("json", words, json_events(words, environment, directory), 0, environment, True))
    return every


def spread(values):
    return f"{statistics.median(values):.1f} [{min(values):.1f}, {max(values):.1f}]"


def row(workload, recorder, runs, bares):
    """Differences from the bare run of the same round, per event. For the bare runs, the times themselves."""
    cells = []
    for figure in range(4):
        values = [
            (run.figures[figure] - (0 if recorder.name == "bare" else bare.figures[figure])) / workload.events
            for run, bare in zip(runs, bares)
        ]
        cells.append(spread(values))
    bytes_each = statistics.median(run.trace_bytes for run in runs) / workload.events
    return [workload.name, recorder.name, *cells, f"{bytes_each:.2f}" if bytes_each else ""]


def print_table(rows):
    head = ["workload", "recorder", "loop CPU", "loop wall", "all CPU", "all wall", "B/event"]
    rule = ["---"] * 2 + ["--:"] * 5
    for cells in (head, rule, *rows):
        print("| " + " | ".join(cells) + " |", flush=True)


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hksim", default=str(ROOT / "target/release/hksim"), help="the program to measure")
    parser.add_argument("--dir", help="where the recorders write (default: a temporary directory)")
    parser.add_argument("--events", type=int, default=10_000_000, help="events per run (default 10 million)")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each recorder and workload (default 5)")
    parser.add_argument("--recorders", nargs="*", metavar="NAME", help="only these, in addition to bare")
    parser.add_argument("--workloads", nargs="*", metavar="NAME", help="only these: 'ws=400 x1', json")
    options = parser.parse_args()
    if not Path(options.hksim).exists():
        sys.exit(f"{options.hksim}: not there; cargo build --release -p hksim, or name one with --hksim")
    with tempfile.TemporaryDirectory(prefix="hksim-bench-", dir=options.dir) as name:
        directory = Path(name)
        compile_into(directory)
        python = find_python()
        tools = recorders(directory, options.hksim, python, options.recorders)
        print(f"{processor()}, {os.cpu_count()} cores, Linux {platform.release()}, load {os.getloadavg()[0]:.1f}")
        print(f"{options.rounds} rounds of {options.events} events; ns per event in excess of bare\n")
        rows = []
        for workload in workloads(directory, options.events, python, options.workloads):
            takers = [tool for tool in tools if tool.takes(workload)]
            rounds = [[tool.run(workload, directory) for tool in takers] for _ in range(options.rounds)]
            bares = [runs[0] for runs in rounds]
            rows += [row(workload, tool, [runs[at] for runs in rounds], bares) for at, tool in enumerate(takers)]
        print_table(rows)


if __name__ == "__main__":
    main()
