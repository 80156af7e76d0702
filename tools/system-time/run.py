#!/usr/bin/env python3
"""Compares the predicted system time of programs with their measured one.

    tools/system-time/run.py [HKSIM] [--only CASE,..] [--runs 9] [--profile FILE] [--json FILE] [--write]

`cases.c` performs one operation of the kernel many times and prints how often, by arithmetic. For each case: `hksim record
--memory` once; `hksim sim` with a profile of this machine (made by `hksim calibrate` unless --profile names one) for counts and a
range of system time; and the program itself, many times. The counts must be the program's own. What is compared is the difference
to the same program without repetitions, since every program is loaded, warms up and ends.

Measured is the processor time of the process from its warm-up to its end, its exit included, as the parent learns it from `wait4`.
The sum of user and system time is exact; the kernel divides it by counting ticks, so the share of the system is taken from the
ticks of all runs of a case together. Before each run the control measures the machine's speed: first touches of 4 MiB, which a
profile has as `write_fault`. Measured times are divided by how much slower the machine is than at calibration.

As root, the script enables folios of 64 KiB and a hugetlb pool for the two cases that need them, and restores both. It holds the
lock of hksim for the machine's modes meanwhile. Exits with status 1 if a count differs. `--write` writes docs/lab/system-time.md.
"""

import argparse
import fcntl
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import tomllib

import page

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLIOS_64K = pathlib.Path("/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled")
HUGE_2M = pathlib.Path("/sys/kernel/mm/transparent_hugepage/hugepages-2048kB/enabled")
POOL = pathlib.Path("/proc/sys/vm/nr_hugepages")
# hksim locks this folder while it changes modes.
MODES_LOCK = "/sys/kernel/mm"
# Repetitions of each case: 60 to 200 ms of system time.
CASES = {
    "touch-small": 4,
    "touch-huge": 30,
    "touch-folios": 6,
    "drop-one-page": 20,
    "drop-half": 15,
    "drop-small": 8,
    "drop-huge": 40,
    "collapse-full": 4,
    "collapse-sparse": 20,
    "free-small": 30,
    "free-huge": 3000,
    "move-small": 1000,
    "move-huge": 2000,
    "move-pages": 400,
    "fork-copies": 4,
    "fork-huge": 6,
    "hugetlb": 60,
    "map-populate": 8,
    "populate-write": 6,
    "read-zero": 20,
    "read-then-write": 3,
    "map-pieces": 15,
    "exit-small": 2,
}
# What a case needs, as text files with the value to set.
NEEDS = {"touch-folios": [(FOLIOS_64K, "madvise"), (HUGE_2M, "never")], "hugetlb": [(POOL, "32")]}
# The same settings, for the simulated kernel.
SIM_FLAGS = {"touch-folios": ["--mthp", "64K=madvise,2M=never"], "hugetlb": ["--hugetlb-pool", "32"]}
# Calibration times every size that a case uses: folios beside huge pages.
CALIBRATION_NEEDS = [(FOLIOS_64K, "madvise"), (POOL, "32")]
# Pages outside the memory of the case that a process writes while it has a child.
OWN_COPIES_PER_FORK = 8
CONTROL_PAGES = 1024


class Settings:
    """Sets what cases need, and restores it. Meanwhile, it holds the lock of the machine's modes."""

    def __init__(self, needs):
        self.needs = needs
        self.before = []

    def __enter__(self):
        self.lock = os.open(MODES_LOCK, os.O_RDONLY) if self.needs else None
        if self.needs:
            fcntl.flock(self.lock, fcntl.LOCK_EX)
        for path, value in self.needs:
            text = path.read_text(encoding="ascii").strip()
            self.before.append((path, text.split("[")[1].split("]")[0] if "[" in text else text))
            path.write_text(value, encoding="ascii")

    def __exit__(self, *_):
        for path, value in reversed(self.before):
            path.write_text(value, encoding="ascii")
        if self.needs:
            os.close(self.lock)


def build(folder):
    """The compiled cases."""
    program = folder / "cases"
    subprocess.run(["cc", "-O2", "-static", "-o", program, HERE / "cases.c"], check=True)
    return program


def hksim_json(hksim, *words):
    done = subprocess.run([hksim, *map(str, words)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def predicted(arguments, program, case, times, folder):
    """The counts of the program, and the row of `hksim sim` for a recording of it."""
    recording = folder / f"{case}.hkm"
    words = [arguments.hksim, "record", "--memory", "-q", "-o", recording, "--", program, case, str(times)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout:
        sys.exit(f"{case}: {done.stderr.strip()}")
    counts = json.loads(done.stdout.splitlines()[-1])
    del counts["warm_up_s"]
    words = ["sim", recording, "--profile", arguments.profile, "--format", "json", *SIM_FLAGS.get(case, [])]
    return counts, hksim_json(arguments.hksim, *words)


def figures(node, found=None):
    """All numbers of a result by the last part of their name; of an address space without regions."""
    found = {} if found is None else found
    if isinstance(node, dict):
        for name, value in node.items():
            if isinstance(value, dict):
                figures(value, found)
            elif isinstance(value, int):
                found.setdefault(name, value)
    return found


def run_once(program, case, times):
    """User and system seconds of one run, and the processor time of its warm-up, which is almost all in the kernel."""
    reading, writing = os.pipe()
    pid = os.posix_spawn(program, [str(program), case, str(times)], {}, file_actions=[(os.POSIX_SPAWN_DUP2, writing, 1)])
    os.close(writing)
    with open(reading, encoding="ascii") as printed:
        text = printed.read()
    _, status, usage = os.wait4(pid, 0)
    if status != 0:
        sys.exit(f"{case}: ended with status {status}")
    return usage.ru_utime, usage.ru_stime, json.loads(text)["warm_up_s"]


def measured(program, case, times, runs):
    """Times after the warm-up, minus the median of runs without repetitions; the system's share; the machine's speed."""
    run_once(program, case, times)
    totals, bases, system, controls = [], [], 0.0, []
    for _ in range(runs):
        controls.append(float(subprocess.run([program, "control", "9"], capture_output=True, text=True, check=True).stdout))
        user_s, system_s, warm_up_s = run_once(program, case, 0)
        bases.append(user_s + system_s - warm_up_s)
        user_s, system_s, warm_up_s = run_once(program, case, times)
        totals.append(user_s + system_s - warm_up_s)
        system += system_s - warm_up_s
    base_s = statistics.median(bases)
    return [total - base_s for total in totals], min(max(system / sum(totals), 0.0), 1.0), controls


def compare(arguments, program, case, profile, folder):
    """One row of the table."""
    times = CASES[case]
    with Settings(NEEDS.get(case, [])):
        counts, result = predicted(arguments, program, case, times, folder)
        base_counts, base_result = predicted(arguments, program, case, 0, folder)
        totals, share, controls = measured(program, case, times, arguments.runs)
    found, base_found = figures(result), figures(base_result)
    counts = {name: number - base_counts[name] for name, number in counts.items()}
    seen = {name: found.get(name, 0) - base_found.get(name, 0) for name in counts}
    # The process's own pages are copied, too.
    own = {"copied_pages": OWN_COPIES_PER_FORK * counts.get("forks", 0)}
    wrong = {name: [number, seen[name]] for name, number in counts.items() if not 0 <= seen[name] - number <= own.get(name, 0)}
    price, base_price = result["system_time"], base_result["system_time"]
    if "low_s" not in price:
        return {"case": case, "skipped": price["skipped"], "wrong_counts": wrong}
    control = profile["costs"]["write_fault"]
    due_s = control["median_ns"] / control["kernel_share"] * CONTROL_PAGES / 1e9
    slower = statistics.median(controls) / due_s
    times_s = [max(total * share, 0.0) / slower for total in totals]
    low, median, high = (price[end] - base_price[end] for end in ["low_s", "median_s", "high_s"])
    middle = statistics.median(times_s)
    return {
        "case": case,
        "times": times,
        "predicted_s": [low, median, high],
        "measured_s": [min(times_s), middle, max(times_s)],
        "system_share": share,
        "drift": slower,
        "inside": low <= middle <= high,
        "wrong_counts": wrong,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hksim", nargs="?", default=ROOT / "target/release/hksim", type=pathlib.Path)
    parser.add_argument("--only", help="only these cases, separated by commas")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--profile", type=pathlib.Path)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    arguments.hksim = arguments.hksim.resolve()
    cases = arguments.only.split(",") if arguments.only else list(CASES)
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        program = build(folder)
        if arguments.profile is None:
            arguments.profile = folder / "machine.toml"
            with Settings(CALIBRATION_NEEDS):
                hksim_json(arguments.hksim, "calibrate", "-o", arguments.profile, "--format", "json")
        profile = tomllib.loads(arguments.profile.read_text(encoding="utf-8"))
        for case in cases:
            rows.append(compare(arguments, program, case, profile, folder))
            print(page.line(rows[-1]), flush=True)
    result = {"machine": profile["machine"], "kernel": platform.release(), "runs": arguments.runs, "rows": rows}
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if arguments.write:
        page.write(result)
    judged = [row for row in rows if "inside" in row]
    print(f"{sum(row['inside'] for row in judged)} of {len(judged)} inside the predicted range")
    wrong = [row["case"] for row in rows if row["wrong_counts"]]
    if wrong:
        sys.exit("counts differ from the program's own: " + ", ".join(wrong))


if __name__ == "__main__":
    main()
