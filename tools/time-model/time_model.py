#!/usr/bin/env python3
"""Predicted times of designs beside measured ones: the fitted numbers of the time model, and its errors.

    cargo build --release -p hksim
    tools/time-model/time_model.py measure --hksim target/release/hksim --out times.json traces/*.hkt
    tools/time-model/time_model.py evaluate times.json --fit python-json,postgres-backend

`measure` calibrates, simulates every design on every recording, and times replays on the preloaded allocator in rounds of
random order (`hksim compare --apart`); with --times FILE it takes measured times from an earlier FILE. `evaluate` prints
the errors of predicted times and of predicted ratios of designs, and what the fit to the recordings named by --fit would
change; the errors on the others are those to expect.

Replays on real allocators do not wait: a recording of seconds is over in milliseconds, so memory that a design purges after a
delay stays. Predictions are for the recording's own times. So the designs here purge never, or without delay.

A replay also does work of its own, which is the same for all designs of a recording. Its time is sampled; it is taken away
from the measured time before that is compared.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile

# Designs that say nothing of purges have these words.
TIMELESS = ["purge=none"]
# The first three differ from the default in instructions, the others in what else the designs of a sweep differ in.
DESIGNS = [
    [],
    ["header=full", "header-bytes=16"],
    ["header=light", "header-bytes=16"],
    ["front-cache=8"],
    ["front-cache=32"],
    ["huge=never"],
    ["superslab=1M"],
    ["slab=16K"],
]
# Of the fit: huge pages everywhere, so that almost only instructions differ.
FITTED = 5


def hksim(program, *words):
    # 1 is the status of a comparison in which an allocator failed; its rows say so.
    ran = subprocess.run([program, *words, "--format", "json"], capture_output=True, check=False, text=True)
    if ran.returncode not in (0, 1):
        sys.exit(f"{words}: {ran.stderr}")
    return json.loads(ran.stdout)


def write(arguments, recordings):
    """After each recording, so that what was measured is kept if the rest is not."""
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump({"seed": arguments.seed, "recordings": recordings}, file)


def name_of(trace):
    return os.path.splitext(os.path.basename(trace))[0]


def calibrate(arguments, folder):
    """Makes a profile of this machine, unless one is given."""
    if not arguments.profile:
        arguments.profile = os.path.join(folder, "profile.toml")
        hksim(arguments.hksim, "calibrate", "-o", arguments.profile)


def predict(arguments, trace, touch, designs):
    """A row for each design."""
    rows = []
    for design in designs:
        words = design if any(word.startswith("purge=") for word in design) else design + TIMELESS
        flags = [word for setting in words for word in ("--" + setting).split("=")]
        sim = hksim(arguments.hksim, "sim", trace, "--touch", touch, "--profile", arguments.profile, *flags)
        rows.append({"design": " ".join(design) or "default", "words": words, "installs": sim["installs"]["total"],
                     "time": sim.get("time"), "time_skipped": sim.get("time_skipped")})
    return rows


def add_measured(arguments, trace, touch, rows):
    """Adds to each row what its replays took."""
    names = ",".join("native:" + "+".join(row["words"]) for row in rows)
    timed = hksim(arguments.hksim, "compare", trace, "--touch", touch, "--allocators", names, "--apart",
                  "--runs", str(arguments.rounds), "--seed", str(arguments.seed))
    for row, measured in zip(rows, timed["rows"]):
        row["measured"] = {part: measured[part] for part in ("cpu_ns_per_call", "system_ns_per_call", "apart")}


def measure(arguments):
    with tempfile.TemporaryDirectory() as folder:
        calibrate(arguments, folder)
        recordings, known = {}, {}
        if arguments.times:
            with open(arguments.times, encoding="utf-8") as file:
                known = json.load(file)["recordings"]
        for trace in arguments.traces:
            rows = predict(arguments, trace, "all", DESIGNS)
            if arguments.times:
                for row, earlier in zip(rows, known[name_of(trace)]):
                    row["measured"] = earlier["measured"]
            else:
                add_measured(arguments, trace, "all", rows)
            recordings[name_of(trace)] = rows
            write(arguments, recordings)
            print(name_of(trace), "done", file=sys.stderr, flush=True)


def own_ns(rows):
    """Nanoseconds per call of the replay's own work: the same for all designs, so the median of their samples."""
    return statistics.median(row["measured"]["apart"]["replay_ns_per_call"]["median"] for row in rows)


def fit(recordings, names):
    """The factor of instruction times that explains best by how much designs differ, by least squares of relative errors,
    and the nanoseconds per call by which levels are off then."""
    up = down = 0.0
    levels = []
    for name in names:
        rows = recordings[name][:FITTED]
        parts = [row["time"]["parts_ns_per_call"] for row in rows]
        rest = [row["measured"]["cpu_ns_per_call"]["median"] - part["memory"] - part["kernel"] for row, part in zip(rows, parts)]
        level = statistics.mean(rest)
        mean = statistics.mean(part["instructions"] for part in parts)
        for ns, part in zip(rest, parts):
            weight = 1 / level**2
            up += weight * (ns - level) * (part["instructions"] - mean)
            down += weight * (part["instructions"] - mean) ** 2
    factor = up / down
    for name in names:
        own = own_ns(recordings[name])
        levels += [row["measured"]["cpu_ns_per_call"]["median"] - own - row["time"]["ns_per_call"]["median"]
                   for row in recordings[name][:FITTED]]
    return factor, statistics.median(levels)


def quantile(values, share):
    values = sorted(values)
    return values[min(int(share * len(values)), len(values) - 1)]


def evaluate(arguments):
    with open(arguments.file, encoding="utf-8") as file:
        recordings = json.load(file)["recordings"]
    print_errors(recordings, [name for name in arguments.fit.split(",") if name], arguments.rows)


def print_errors(recordings, fitted, is_by_row):
    """Prints the table of errors; with `is_by_row` each design, too."""
    if fitted:
        factor, level = fit(recordings, fitted)
        print(f"the fit: differences of instructions times {factor:.3f}, and {level:+.1f} ns per call")
    print("| Recording | Replay's own ns | Level, predicted / measured | Ratio error, median / largest "
          "| Pairs apart: right / wrong | by installs |")
    print("|---|--:|--:|--:|--:|--:|")
    levels, errors = [], []
    for name, rows in recordings.items():
        own = own_ns(rows)
        predicted, measured = [], []
        for row in rows:
            predicted.append(row["time"]["ns_per_call"]["median"])
            measured.append({end: ns - own for end, ns in row["measured"]["cpu_ns_per_call"].items()})
        here, right, wrong, counted = [], 0, 0, [0, 0]
        for one, other in itertools.combinations(range(len(rows)), 2):
            ratio = measured[one]["median"] / measured[other]["median"]
            here.append(abs(predicted[one] / predicted[other] / ratio - 1))
            apart = measured[one]["high"] < measured[other]["low"] or measured[other]["high"] < measured[one]["low"]
            if apart:
                is_right = (predicted[one] < predicted[other]) == (ratio < 1)
                right, wrong = right + is_right, wrong + (not is_right)
                installs = [rows[row]["installs"] for row in (one, other)]
                counted[(installs[0] < installs[1]) != (ratio < 1) or installs[0] == installs[1]] += 1
        level = [predicted[row] / measured[row]["median"] for row in range(len(rows))]
        mark = " (fit)" if name in fitted else ""
        if not mark:
            errors += here
            levels += level
        print(f"| {name}{mark} | {own:.1f} | {min(level):.2f} to {max(level):.2f} "
              f"| {statistics.median(here):.1%} / {max(here):.1%} "
              f"| {right} / {wrong} | {counted[0]} / {counted[1]} |")
        if is_by_row:
            for row, ns, real in zip(rows, predicted, measured):
                parts = ", ".join(f"{part} {value:.1f}" for part, value in row["time"]["parts_ns_per_call"].items())
                print(f"    {row['design']:36} predicted {ns:6.1f} ({parts}), measured {real['median']:6.1f}")
    if errors:
        off = [abs(level - 1) for level in levels]
        print(f"not fitted: ratio error median {statistics.median(errors):.1%}, p90 {quantile(errors, 0.9):.1%}; "
              f"level error median {statistics.median(off):.1%}, p90 {quantile(off, 0.9):.1%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("traces", nargs="+")
    measuring.add_argument("--hksim", default="target/release/hksim")
    measuring.add_argument("--profile", help="a profile of this machine [default: calibrate]")
    measuring.add_argument("--times", metavar="FILE", help="take measured times from this file")
    measuring.add_argument("--rounds", type=int, default=41)
    measuring.add_argument("--seed", type=int, default=1)
    measuring.add_argument("--out", required=True)
    measuring.set_defaults(run=measure)
    evaluating = commands.add_parser("evaluate")
    evaluating.add_argument("file")
    evaluating.add_argument("--fit", default="", help="names of recordings")
    evaluating.add_argument("--rows", action="store_true", help="print every design")
    evaluating.set_defaults(run=evaluate)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
