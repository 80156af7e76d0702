"""Generates and checks the recordings in traces/: make.py HKSIM [NAME...]

Each workload runs bare, with a bare counter of calls (counter.c), with the recorder, and with both. If both are loaded,
the recorder calls the counter, so the counter counts exactly the calls that the recorder passes on. The checks are:

- In the run with both, each process's counts by function are equal.
- The counts of the stored recording are within the range of the counter's runs. Servers and garbage collectors differ
  from run to run, so further runs are made if a count is outside. Counts that are still outside are written to the
  manifest. The check fails if they are farther from the counter's runs than these runs are from each other.
- The program's results are the same in every run.
- hksim can read, simulate and validate the recording.

Then it writes the recordings, MANIFEST.toml, and the tables of docs/lab/corpus.md.
"""

import argparse
import shutil
import signal
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import counts
import programs
import report
import servers
from launch import Launchers

TOOLS = Path(__file__).resolve().parent
TRACES = TOOLS.parent
WORKLOADS = [
    servers.Redis, servers.MariaDb, servers.Postgres, programs.GitPack, programs.Cc1plus, programs.Node, programs.Ruby,
    programs.Python, programs.Sqlite, programs.Server,
]  # fmt: skip
NAMES = [workload.name for workload in WORKLOADS]
TIMED_RUNS = 5
COUNTED_RUNS = 5
# If runs differ only by chance, a further run is outside the range of n runs with probability 2 / (n + 1): 2/21 for n = 20.
COUNTED_RUNS_MAX = 20


class Runs:
    """The runs of one workload, and their results."""

    def __init__(self, workload, hksim, launchers):
        self.workload, self.hksim, self.launchers = workload, hksim, launchers
        self.digests, self.counter_runs, self.problems = set(), [], []

    def run(self, launcher):
        self.digests.add(self.workload.run(launcher))

    def timed(self, launcher, file):
        """Wall-clock and CPU seconds of a run. For a server, the wall-clock seconds are those of its load."""
        self.run(launcher)
        elapsed_s, cpu_s = map(float, file.read_text().split())
        return self.workload.load_s or elapsed_s, cpu_s

    def time(self):
        """Medians of the bare runs and of the recorded runs, which alternate."""
        bare, recorded = [], []
        for _ in range(TIMED_RUNS):
            bare.append(self.timed(*self.launchers.timed_bare()))
            recorded.append(self.timed(*self.launchers.timed_recorded()))
        return [report.Took(*map(statistics.median, zip(*runs))) for runs in (bare, recorded)]

    def count(self):
        launcher, folder = self.launchers.counted()
        self.run(launcher)
        self.counter_runs.append(counts.busiest(counts.read_counter(folder)))

    def same_run(self):
        """Records with the counter below the recorder. Returns the number of calls compared."""
        launcher, traces, counter = self.launchers.recorded_and_counted()
        self.run(launcher)
        recorded, traces = counts.read_traces(self.hksim, traces)
        counted = counts.read_counter(counter, without=self.hksim)
        different = counts.differences(recorded, counted)
        self.problems += different + lost(traces)
        calls = sum(sum(groups.values()) for groups in counted.values())
        print(f"  same run: {calls} calls in {len(counted)} processes: {'DIFFERENT' if different else 'equal'}", flush=True)
        return calls

    def outside(self, recorded):
        """The counts of `recorded` outside the range of the counter's runs."""
        for _ in range(COUNTED_RUNS):
            self.count()
        while (outside := counts.outside(recorded, self.counter_runs)) and len(self.counter_runs) < COUNTED_RUNS_MAX:
            self.count()
        return outside


def make(workload, hksim, launchers):
    """Runs a workload in all ways. Returns the results."""
    runs = Runs(workload, hksim, launchers)
    bare, recorded = runs.time()
    same_run_calls = runs.same_run()
    launcher, folder = launchers.recorded()
    runs.run(launcher)
    processes, traces = counts.read_traces(hksim, folder)
    runs.problems += lost(traces)
    outside = runs.outside(counts.busiest(processes))
    runs.problems += [f"far from the counter's runs: {one}" for one in outside if one.too_far]
    if len(runs.digests) > 1:
        runs.problems.append(f"the program's results differ: {len(runs.digests)} kinds")
    path, info = max((one for images in traces.values() for one in images), key=lambda one: one[1]["events"])
    return report.Made(
        workload=workload,
        trace=path,
        info=info,
        processes=len(processes),
        same_run_calls=same_run_calls,
        problems=runs.problems,
        outside=outside,
        counter_runs=len(runs.counter_runs),
        deterministic=all(one == runs.counter_runs[0] for one in runs.counter_runs),
        bare=bare,
        recorded=recorded,
    )


def lost(traces):
    """Describes the traces that report missing data."""
    return [
        f"process {pid}: {info['quality']['events_lost']} events lost, complete: {info['complete']}"
        for pid, images in traces.items()
        for _, info in images
        if info["quality"]["events_lost"] or not info["complete"]
    ]


def build(folder):
    """Compiles the two C programs."""
    counter, timed = folder / "counter.so", folder / "timed"
    for source, options in (("counter.c", ["-fPIC", "-shared", "-o", counter]), ("timed.c", ["-o", timed])):
        subprocess.run(["cc", "-O2", "-Wall", "-Wextra", *options, TOOLS / source], check=True)
    return counter, timed


def select(names):
    known = {workload.name: workload for workload in WORKLOADS}
    unknown = set(names) - set(known)
    if unknown:
        sys.exit(f"make.py: no workload {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [workload for workload in WORKLOADS if not names or workload.name in names]


def record(kind, hksim, folder, entries):
    """Runs one workload in `folder`. Unless there are problems, its recording and manifest entry replace the old ones. Returns the problems."""
    folder.chmod(0o755)
    work = folder / "work"
    work.mkdir()
    workload = kind(work)
    if why := workload.missing():
        print(f"{workload.name}: skipped: {why}", flush=True)
        return []
    print(f"{workload.name}: {workload.version()}", flush=True)
    workload.prepare()
    made = make(workload, hksim, Launchers(hksim, *build(folder), folder))
    problems = made.problems + report.hksim_reads(hksim, made)
    print(made.summary(), flush=True)
    if not problems:
        target = TRACES / f"{workload.name}.hkt"
        shutil.copyfile(made.trace, target)
        entries[workload.name] = made.entry(target)
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hksim", type=Path, help="the built command")
    parser.add_argument("name", nargs="*", help="workloads to regenerate (default: all)")
    arguments = parser.parse_args()
    # On SIGTERM, exit normally, so that servers are ended and folders are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    hksim, failed = arguments.hksim.resolve(), False
    entries = report.read_manifest(TRACES)
    for kind in select(arguments.name):
        # The name is short, because it is part of socket paths, which have at most 107 bytes.
        with TemporaryDirectory(prefix="corpus.") as folder:
            try:
                problems = record(kind, hksim, Path(folder), entries)
            except (RuntimeError, OSError, subprocess.SubprocessError) as why:
                problems = [f"{why} {(getattr(why, 'stderr', None) or b'').decode(errors='replace')[-2000:]}"]
        for problem in problems:
            print(f"  FAILED: {problem}", flush=True)
        failed = failed or bool(problems)
        report.write_manifest(TRACES, entries, NAMES)
    report.write_tables(TRACES.parent / "docs/lab/corpus.md", entries, NAMES)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
