#!/usr/bin/env python3
"""Compares `record --accesses pages` with the kernel on real programs. It compares the page faults that `sim` predicts from a recording with
those that perf counts in the heap of the same design (`hksim run`). Prints one table row for each program.

    benches/touch_pages/run.py HKSIM [NAME...]        # as root, or with kernel.perf_event_paranoid 1

Each program (programs.py) is recorded and run alternately, RUNS times each (default: 3). If the figures differ, twice that number of runs are
added, because some programs vary from run to run. A figure is the median, followed by the range of the runs. The verdict is `within 2 %`,
`in its spread` if both ranges overlap, or `differs`. Only faults of the process itself count, not those of its children. The design does not
purge, because purging depends on time. Huge pages are disabled for the programs (prctl), because some programs request them. Programs that
are missing or do not work are skipped, with the reason on standard error. With DETAILS=FILE, the runs of each program are appended to FILE
as a line of JSON.
"""

import ctypes
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from inputs import Inputs, Missing, which
from programs import CLIENTS, PROGRAMS, command

RUNS = int(os.environ.get("RUNS", "3"))
LIMIT_S = 120
POLICY = ["--huge", "never", "--purge", "none"]
# An address range that starts at the native allocator's reservation (BASE_ADDRESS in crates/policy/src/arena/layout.rs) and is far larger.
HEAP = range(0x2000_0000_0000, 0x2000_0000_0000 + (1 << 38))
DIFFERS = "differs"
PR_SET_THP_DISABLE = 41
LIBC = ctypes.CDLL(None, use_errno=True)


class Failed(Exception):
    """A run that failed."""


def switch_huge_pages_off():
    if LIBC.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


class Bench:
    def __init__(self, hksim, folder):
        self.hksim, self.folder, self.inputs = hksim, Path(folder), Inputs(folder)

    def play(self, name, *before):
        """Runs a program, with the given words before its command. Returns its standard error."""
        words, stdin = command(name, self.inputs)
        words[0] = which(words[0])
        client = threading.Thread(target=CLIENTS[name], args=(self.inputs,)) if name in CLIENTS else None
        with open(stdin, "rb") as read:
            process = subprocess.Popen(
                [*before, *words],
                stdin=read, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
                env=self.inputs.environment, cwd=self.folder, preexec_fn=switch_huge_pages_off,
            )  # fmt: skip
            if client:
                client.start()
            try:
                _, errors = process.communicate(timeout=LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                raise Failed(f"takes longer than {LIMIT_S} s") from None
            if client:
                client.join()
        if process.returncode != 0:
            raise Failed(f"exit status {process.returncode}: {errors.strip()[-300:]}")
        return errors

    def hksim_json(self, *words):
        """The JSON output of a subcommand of hksim."""
        done = subprocess.run([self.hksim, *words, "--format", "json"], capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    def predicted(self, name):
        trace = self.folder / "job.hkt"
        errors = self.play(name, self.hksim, "record", "--accesses", "pages", "--no-children", "--format", "json", "-o", trace, "--")
        # The report follows the program's own output on standard error.
        report = json.loads(errors[errors.rindex('{\n  "schema"') :])
        if report["exit"] != {"code": 0}:
            raise Failed(f"recorded: {report['exit']}")
        # Simulates the recorded forks, so that pages shared with children are copied.
        predicted = self.hksim_json("sim", trace, *POLICY, "--fork-at", "recorded")
        kinds = predicted["installs"]["by_kind"]
        return {"faults": predicted["faults"], "again": kinds["cow"] + sum(fork["cow_reuses"] for fork in predicted.get("forks", [])), "report": report["traces"][0]}

    def measured(self, name):
        data = self.folder / "perf.data"
        self.play(name, which("perf"), "record", "-q", "-e", "page-faults", "-c", "1", "-d", "-m", "16M", "-o", data, "--", self.hksim, "run", *POLICY, "--")
        script = subprocess.run(["perf", "script", "-i", data, "-F", "pid,addr", "--show-lost-events"], capture_output=True, text=True, check=True)
        if "LOST" in script.stdout:
            raise Failed("perf lost faults")
        faults = [(pid, int(address, 16)) for pid, address in map(str.split, script.stdout.splitlines())]
        pages = [address >> 12 for pid, address in faults if pid == faults[0][0] and address in HEAP]
        # A page that faults a second time was read before it was written, or written after a fork.
        return {"faults": len(pages), "again": len(pages) - len(set(pages))}

    def row(self, name):
        """The cells of a program's row in the table."""
        real, predicted_runs = [], []
        for more in (RUNS, 2 * RUNS):
            for _ in range(more):
                predicted_runs.append(self.predicted(name))
                real.append(self.measured(name))
            cells = compared([run["faults"] for run in real], [run["faults"] for run in predicted_runs])
            if cells[-1] != DIFFERS:
                break
        details = os.environ.get("DETAILS")
        if details:
            with open(details, "a", encoding="utf-8") as file:
                print(json.dumps({"name": name, "measured": real, "predicted": predicted_runs}), file=file)
        return [name, *cells]


def compared(real, predicted_runs):
    """The other cells of a row."""
    error = statistics.median_low(predicted_runs) / statistics.median_low(real) - 1
    overlap = max(min(real), min(predicted_runs)) <= min(max(real), max(predicted_runs))
    verdict = "within 2 %" if abs(error) <= 0.02 else "in its spread" if overlap else DIFFERS
    return [spread(real), spread(predicted_runs), f"{error:+.1%}", verdict]


def spread(values):
    middle = statistics.median_low(values)
    low, high = min(values), max(values)
    return f"{middle}" if low == high else f"{middle} ({low}-{high})"


def main():
    hksim, wanted = os.path.realpath(sys.argv[1]), sys.argv[2:] or PROGRAMS
    print("| program | measured | predicted | error | verdict |")
    print("|---|--:|--:|--:|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(hksim, folder)
        for name in wanted:
            try:
                bench.play(name)
            except (Missing, Failed) as why:
                print(f"skipped: {name}: {why}", file=sys.stderr, flush=True)
                continue
            try:
                cells = bench.row(name)
            except Failed as why:
                cells = [name, "", "", "", f"fails: {why}"]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
