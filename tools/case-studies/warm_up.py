#!/usr/bin/env python3
"""Experiment E4 in nanoseconds: what a call costs after a warm-up, compared with a run that has none.

    tools/case-studies/warm_up.py HKSIM [--rounds 25] [--seed N] [--json FILE]

A round times the three replays (no warm-up; a warm-up of 100 000 cycles; the warm-up alone) in random order, so that they meet the same
state of the machine. Calls after the warm-up take the difference of the last two. Prints a row for each design, with the
median of the rounds' ratios and its interval of at least 95 % (order statistics).
"""

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

PRESET = "--preset hakmem --startup-touch 0 --huge never --header-bytes 16".split()
# Has the reported faults; see docs/lab/experiments.md.
DESIGN_A = "--warm-slabs 0 --slab 16K --classes 16/32/64/128/256/512/784/65536 --purge-delay 0".split()
DESIGNS = {"preset": PRESET, "design A": PRESET + DESIGN_A}
NONE, BOTH, ALONE = "warm-0.hkt", "warm-100k.hkt", "only-100k.hkt"


def run(hksim, folder, *words):
    done = subprocess.run([hksim, *words], cwd=folder, capture_output=True, text=True)
    # 1: a prediction is off, which is an answer.
    if done.returncode not in (0, 1):
        sys.exit(done.stderr)
    return done.stdout


def total_ns(hksim, folder, trace, flags, runs):
    """Nanoseconds of all calls of a trace, predicted and measured, and the number of calls."""
    words = ["validate", trace, "-q", "--time", "--profile", "costs.toml", "--runs", str(runs), "--format", "json", *flags]
    row = json.loads(run(hksim, folder, *words))["timed_traces"][0]["rows"][0]
    predicted = row["predicted"]
    total = predicted["total_s"]["median"] * 1e9
    calls = total / predicted["ns_per_call"]["median"]
    return total, row["measured"]["ns_per_call"]["median"] * calls, calls


def interval(values):
    """Order statistics around the median that contain it with a probability of at least 95 %."""
    values, count = sorted(values), len(values)
    outside, rank = 0.0, 0
    while rank < count // 2 and outside + math.comb(count, rank) / 2**count <= 0.025:
        outside += math.comb(count, rank) / 2**count
        rank += 1
    return values[max(rank - 1, 0)], values[count - max(rank, 1)]


def round_of(hksim, folder, flags, runs):
    order = [NONE, BOTH, ALONE]
    random.shuffle(order)
    at = {trace: total_ns(hksim, folder, trace, flags, runs) for trace in order}
    before = [at[NONE][kind] / at[NONE][2] for kind in (0, 1)]
    after = [(at[BOTH][kind] - at[ALONE][kind]) / (at[BOTH][2] - at[ALONE][2]) for kind in (0, 1)]
    return {"predicted": (before[0], after[0]), "measured": (before[1], after[1])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hksim", type=Path)
    parser.add_argument("--rounds", type=int, default=25, help="at least 6, for an interval of 95 %%")
    parser.add_argument("--runs", type=int, default=3, help="timed runs of each replay in a round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if given.rounds < 6:
        parser.error("--rounds: fewer than 6 give no interval of 95 %")
    hksim = str(given.hksim.resolve())
    random.seed(given.seed)
    print(f"seed {given.seed}, {given.rounds} rounds\n")
    print("| Design | ns per call without a warm-up, predicted | measured | after it, predicted | measured | ratio, predicted | measured |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        run(hksim, folder, "calibrate", "-q", "-o", "costs.toml")
        for cycles, trace in (("0", NONE), ("100k", BOTH)):
            run(hksim, folder, "gen", "random-mixed", "-q", "--cycles", "1M", "--ws", "256", "--warmup", cycles, "-o", trace)
        run(hksim, folder, "trace", "cut", "-q", BOTH, "--events", "..100k", "-o", ALONE)
        for name, flags in DESIGNS.items():
            rounds = found[name] = [round_of(hksim, folder, flags, given.runs) for _ in range(given.rounds)]
            of = lambda kind, which: statistics.median(one[kind][which] for one in rounds)  # noqa: E731
            ratios = [one["measured"][1] / one["measured"][0] for one in rounds]
            low, high = interval(ratios)
            predicted = rounds[0]["predicted"]
            print(
                f"| {name} | {predicted[0]:.1f} | {of('measured', 0):.1f} | {predicted[1]:.1f} | {of('measured', 1):.1f} | "
                f"{predicted[1] / predicted[0]:.3f} | {statistics.median(ratios):.3f} ({low:.3f} to {high:.3f}) |",
                flush=True,
            )
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


main()
