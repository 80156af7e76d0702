"""The results of a workload: as progress messages, as a manifest entry, and as rows of docs/lab/corpus.md."""

import datetime
import hashlib
import json
import subprocess
import tomllib
from dataclasses import dataclass

import programs

LICENCE = "MIT OR Apache-2.0"
MANIFEST_HEAD = "# Written by make.sh. All recordings are our own; docs/lab/corpus.md says what was checked, and how.\n"


@dataclass
class Took:
    """The time of a run."""

    wall_s: float
    cpu_s: float


@dataclass
class Made:
    """A recording and its properties."""

    workload: object
    trace: object  # path of the stored recording
    info: dict  # `hksim info` of the trace
    processes: int  # number of processes in the recording
    same_run_calls: int  # number of calls compared in the run with both recorder and counter
    problems: list
    outside: list  # counts.Outside
    counter_runs: int
    deterministic: bool  # whether the counter's runs are equal
    bare: Took
    recorded: Took
    installs: int = 0  # predicted for the default design, which has huge pages
    installs_small: int = 0  # predicted for the default design without huge pages

    def summary(self):
        return "\n".join([
            f"  counter alone: {self.within()}",
            f"  slow-down: {_slower(self.bare.wall_s, self.recorded.wall_s)}; "
            f"CPU {_slower(self.bare.cpu_s, self.recorded.cpu_s)}",
            f"  kept: {self.info['events']} events, {'all' if self.processes == 1 else 'of the busiest'} {_of(self.processes)}",
        ])

    def within(self):
        if self.outside:
            return f"just outside the range of {self.counter_runs} runs of the counter: {', '.join(map(str, self.outside))}"
        return f"{'equal to' if self.deterministic else 'within the range of'} {self.counter_runs} runs of the counter"

    def entry(self, path):
        """The manifest's entry for the recording, now at `path`."""
        data = path.read_bytes()
        return {
            "file": path.name,
            "program": self.workload.does,
            "command": self.workload.shown_command(),
            "versions": f"{self.workload.version()}, {self.workload.allocator()}",
            "date": datetime.datetime.now(datetime.timezone.utc).date(),
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
            "licence": LICENCE,
            "holds": {name: self.info[name] for name in COUNTS},
            "checked": {
                "processes": self.processes,
                "same_run_calls": self.same_run_calls,
                "counter": self.within(),
                "installs": self.installs,
                "installs_small": self.installs_small,
                "bare_s": round(self.bare.wall_s, 3),
                "recorded_s": round(self.recorded.wall_s, 3),
                "bare_cpu_s": round(self.bare.cpu_s, 3),
                "recorded_cpu_s": round(self.recorded.cpu_s, 3),
            },
        }


# Fields of `hksim info` that are also in the manifest.
COUNTS = ["events", "threads", "live_bytes_peak", "live_objects_peak", "cross_thread_frees", "unknown_frees"]


def hksim_reads(hksim, made):
    """Simulates and validates the recording. Returns the problems."""
    simulated = _run(hksim, "sim", "--format", "json", made.trace)
    without_huge = _run(hksim, "sim", "--huge=never", "--format", "json", made.trace)
    validated = _run(hksim, "validate", "--superslab", "2M", "--huge=never", made.trace)
    if simulated.returncode == without_huge.returncode == 0:
        made.installs, made.installs_small = (
            json.loads(run.stdout)["installs"]["total"] for run in (simulated, without_huge)
        )
    return [
        f"hksim {run.args[1]}: exit status {run.returncode}: {run.stderr.decode()[-500:]}{run.stdout.decode()[-1500:]}"
        for run in (simulated, without_huge, validated)
        if run.returncode != 0
    ]


def _run(hksim, *words):
    return subprocess.run([str(hksim), *map(str, words)], capture_output=True, env=programs.ENVIRONMENT)


def read_manifest(folder):
    """The manifest of `folder`: {name: entry}."""
    path = folder / "MANIFEST.toml"
    found = tomllib.loads(path.read_text())["trace"] if path.exists() else []
    return {entry["file"].removesuffix(".hkt"): entry for entry in found}


def write_manifest(folder, entries, order):
    """Writes the entries of the workloads in `order`, and removes recordings that belong to no workload."""
    text = MANIFEST_HEAD
    for name in entries.keys() - set(order):
        (folder / f"{name}.hkt").unlink(missing_ok=True)
    for name in order:
        if entry := entries.get(name):
            text += "\n[[trace]]\n" + _lines(entry)
            text += "".join(f"\n[trace.{key}]\n{_lines(entry[key])}" for key in ("holds", "checked"))
    (folder / "MANIFEST.toml").write_text(text)


def _lines(table):
    return "".join(f"{key} = {_toml(value)}\n" for key, value in table.items() if not isinstance(value, dict))


def _toml(value):
    if isinstance(value, str):
        # TOML's basic strings have JSON's escapes.
        return json.dumps(value, ensure_ascii=False)
    return str(value)


def write_tables(page, entries, order):
    """Writes the tables of the workloads in `order` between the markers in `page`."""
    corpus = ["| recording | program | events | threads | live, peak | cross-thread frees | B/event | installs | without huge pages |"]
    corpus += ["|---|---|--:|--:|--:|--:|--:|--:|--:|"]
    checks = ["| recording | calls | processes | counts | time | CPU time |"]
    checks += ["|---|--:|--:|---|--:|--:|"]
    for entry in (entries[name] for name in order if name in entries):
        holds, checked = entry["holds"], entry["checked"]
        corpus.append(
            f"| {entry['file']} | {entry['versions']} | {_count(holds['events'])} | {holds['threads']} "
            f"| {holds['live_bytes_peak'] / 2**20:.1f} MiB | {_count(holds['cross_thread_frees'])} "
            f"| {entry['bytes'] / holds['events']:.2f} | {_count(checked['installs'])} | {_count(checked['installs_small'])} |"
        )
        checks.append(
            f"| {entry['file']} | {_count(checked['same_run_calls'])} | {checked['processes']} | {checked['counter'].replace(' of the counter', '')} "
            f"| {_change(checked['bare_s'], checked['recorded_s'])} | {_change(checked['bare_cpu_s'], checked['recorded_cpu_s'])} |"
        )
    text = page.read_text()
    for name, rows in (("corpus", corpus), ("checks", checks)):
        begin, end = f"<!-- {name}: written by traces/make.sh -->\n", f"<!-- end of {name} -->"
        before, rest = text.split(begin)
        text = before + begin + "\n".join(rows) + "\n" + end + rest.split(end, 1)[1]
    page.write_text(text)


def _of(processes):
    return f"of {processes} processes" if processes > 1 else "of 1 process"


def _count(number):
    return f"{number:,}".replace(",", " ")


def _slower(bare_s, recorded_s):
    return f"{bare_s:.2f} s -> {recorded_s:.2f} s ({_change(bare_s, recorded_s)})"


def _change(bare_s, recorded_s):
    return f"{100 * (recorded_s / bare_s - 1):+.0f} %"
