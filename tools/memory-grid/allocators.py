#!/usr/bin/env python3
"""Predictions for allocators against real replays: every trace of traces/ on five allocators, under four settings.

    tools/memory-grid/allocators.py [--hksim target/release/hksim] [--only TRACE,..] [--runs 2] [--json FILE] [--write]

Each trace is replayed once on each allocator with huge pages off, and recorded (`hksim replay --on NAME --memory`). The kernel model
predicts the replay under each setting, and `hksim validate --set-modes` measures real replays under it: `--runs`, or five if the
allocator differs from itself. Prints a table in Markdown: predicted traps, and after them the measured ones where they differ.
`--write` writes docs/lab/allocators-and-modes.md. Needs root. Exits with status 1 if a row failed.
"""

import argparse
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/lab/allocators-and-modes.md"
ALLOCATORS = ["glibc", "jemalloc", "mimalloc", "tcmalloc", "native"]
SETTINGS = [["--thp", "never,madvise,always", "--mthp", "2M=inherit"], ["--thp", "madvise", "--mthp", "64K=always"]]
NAMES = ["never", "madvise", "always", "madvise, 64K always"]
SECONDS_MAX = 900
# Runs of an allocator that differs from itself.
RUNS_DIFFERING = 5

HEAD = """# Allocators under THP modes

Predicted page-fault exceptions (traps) of each recording in traces/ on five allocators, against real replays.
`tools/memory-grid/allocators.py --write` generates this page. Each trace is replayed once with huge pages off and recorded; all other
columns are predictions from that recording. `validate` then measures {runs} replays under each setting, and {runs_differing} if the
allocator differs from itself.

One number: the measurement equals the prediction in traps, huge pages, resident memory and the set of present pages. `p / m..n`: the
allocator does not repeat itself, and the prediction p is within the spread of the replays. `*`: these figures are equal, but the
allocator chose other pages. `+`: only its huge pages or resident memory at the exit differ from run
to run. `z`: the kernel freed pages of zeros when it split a huge page, and contents are not recorded.

| Trace | Allocator | {columns} |
|---|---|{dashes}|
"""


def cell(row):
    """The traps of a row."""
    if row["verdict"] == "skipped":
        return "skipped"
    predicted = [figures["traps"] for figures in row["predicted"]]
    measured = [figures["traps"] for figures in row["measured"]]
    mark = "" if row["verdict"] == "ok" else " FAILED"
    if row["class"] == "exact":
        return f"{predicted[0]}{mark}"
    if row["class"] == "bounded":
        return f"{predicted[0]} z{mark}"
    if row["residual"] == 0:
        return f"{predicted[0]} *{mark}"
    if {*predicted, *measured} == {predicted[0]}:
        return f"{predicted[0]} +{mark}"
    return f"{predicted[0]} / {min(measured)}..{max(measured)}{mark}"


def rows_of(hksim, trace, allocator, runs, folder):
    recording = folder / "replay.hkm"
    subprocess.run([hksim, "replay", trace, "--on", allocator, "--memory", recording], check=True, capture_output=True, timeout=SECONDS_MAX)
    rows = []
    for flags in SETTINGS:
        found = validated(hksim, recording, flags, runs)
        if any(row["class"] not in ("exact", "bounded") or row["verdict"] != "ok" for row in found) and runs < RUNS_DIFFERING:
            found = validated(hksim, recording, flags, RUNS_DIFFERING)
        rows += found
    return rows


def validated(hksim, recording, flags, runs):
    command = [hksim, "validate", recording, *flags, "--run-recorded", "--runs", str(runs), "--set-modes", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return json.loads(done.stdout)["rows"]


def load(path):
    """The rows of earlier runs, by trace and allocator."""
    return json.loads(pathlib.Path(path).read_text(encoding="utf-8")) if path and pathlib.Path(path).exists() else {}


def page(results, runs):
    """The page in Markdown, and how many rows failed."""
    text = HEAD.format(runs=runs, runs_differing=RUNS_DIFFERING, columns=" | ".join(NAMES), dashes="|".join(["--:"] * len(NAMES)))
    classes, failures = collections.Counter(), []
    for name, rows in sorted(results.items(), key=lambda item: (item[0].split()[0], ALLOCATORS.index(item[0].split()[1]))):
        text += line(name, rows)
        for row in rows:
            classes[row["class"] or row["verdict"]] += 1
            if row["verdict"] != "ok":
                setting = " ".join(value for _, value in row["setting"])
                failures.append(f"- {name.replace(' ', ' on ')}, {setting}: {row['verdict']}: {row['reason']}\n")
    counts = ", ".join(f"{count} {name}" for name, count in sorted(classes.items()))
    text += f"\n{sum(classes.values())} comparisons: {counts}; {len(failures)} failed.\n"
    return text + "".join(["\n", *failures] if failures else []), len(failures)


def line(name, rows):
    return f"| {name.replace(' ', ' | ')} | {' | '.join(map(cell, rows))} |\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--hksim", default=str(ROOT / "target/release/hksim"))
    parser.add_argument("--only", help="names of traces, separated by commas")
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--json", help="a file that keeps the rows; traces and allocators in it are not replayed again")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    only = arguments.only.split(",") if arguments.only else None
    results = load(arguments.json)
    with tempfile.TemporaryDirectory() as folder:
        for trace in sorted((ROOT / "traces").glob("*.hkt")):
            for allocator in ALLOCATORS:
                name = f"{trace.stem} {allocator}"
                if name in results or only and trace.stem not in only:
                    continue
                results[name] = rows_of(arguments.hksim, trace, allocator, arguments.runs, pathlib.Path(folder))
                print(line(name, results[name]), end="", flush=True)
                if arguments.json:
                    pathlib.Path(arguments.json).write_text(json.dumps(results, indent=1), encoding="utf-8")
    text, failed = page(results, arguments.runs)
    print(text)
    if arguments.write:
        PAGE.write_text(text, encoding="utf-8")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
