#!/usr/bin/env python3
"""Predicted times of designs beside measured ones: the costs of the model's code, its terms, and its errors.

    cargo build --release -p hksim
    tools/time-model/time_model.py measure --hksim target/release/hksim --out times.json traces/*.hkt
    tools/time-model/time_model.py evaluate times.json --fit python-json,postgres-backend,redis-server
    tools/time-model/time_model.py terms times.json --fit python-json,postgres-backend,redis-server

`measure` calibrates, simulates every design on every recording, and times replays on the preloaded allocator in rounds of
random order (`hksim compare`). It keeps the counts of the simulations, so that the other commands measure nothing.
`evaluate` prints errors of predicted times and of predicted ratios of designs, on the recordings that --fit does not name;
`terms` the same with and without each term of the model, after a new fit of the two numbers of the profile's `code` to the
recordings that --fit names each time; without --fit with those of the profile.

A replay also does work of its own, which is the same for all designs of a recording. Its time is measured by a replay
without an allocator, and added to the predictions. Recordings with threads are replayed on one thread.
"""

import argparse
import json
import sys
import tempfile

import cases
import errors

DESIGNS = [words.split() for words in [
    "",
    "header=full header-bytes=16",
    "header=light header-bytes=16",
    "header=off header-bytes=16",
    "front-cache=8",
    "front-cache=32",
    "front-cache=255",
    "huge=never",
    "superslab=1M",
    "superslab=4M",
    "slab=16K",
    "slab=256K",
    "classes=linear",
    "classes=spacing-2",
    "classes=spacing-8",
    "prefault=populate",
    "prefault=memset",
    "purge=dontneed purge-delay=0",
    "purge=free purge-delay=0",
    "huge=never purge=free purge-delay=0",
    "huge=never front-cache=32",
    "huge=never slab=16K",
    "free-order=address",
    "free-order=fifo",
    "carve=eager",
    "meta=sidecar huge=never",
]]
# What is fitted, in this order: the terms that are counted in cycles.
FITTED = ["instructions", "calls"]
# Other bounds of the allocator's loads than the model's.
BOUNDS_KIB = [64, 512, 1024]


def measure(arguments):
    with tempfile.TemporaryDirectory() as folder:
        profile, recordings = cases.calibrate(arguments, folder), {}
        for trace in arguments.traces:
            one = cases.on_one_thread(arguments, trace, folder)
            rows = cases.predict(arguments, one, "all", DESIGNS)
            recordings[cases.name_of(trace)] = cases.measured(arguments, one, "all", rows)
            # After each recording, so that what was measured is kept if the rest is not.
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump({"seed": arguments.seed, "profile": profile, "recordings": recordings}, file)
            print(cases.name_of(trace), "done", file=sys.stderr, flush=True)


def read(arguments):
    with open(arguments.file, encoding="utf-8") as file:
        data = json.load(file)
    return data, [name for name in arguments.fit.split(",") if name]


def evaluate(arguments):
    data, fitted = read(arguments)
    errors.print_table(data["recordings"], fitted, arguments.rows)
    if arguments.csv:
        errors.write_rows(arguments.csv, data["recordings"])


def per_call(data):
    """Terms of every row in nanoseconds per call, by recording and design."""
    model, table, found = errors.oracle(), errors.paths_table(), {}
    for name, recording in data["recordings"].items():
        for row in recording["rows"]:
            sim, costs = row["sim"], data["profile"]["memory"]
            terms = model.terms(sim, data["profile"], table)
            in_order = costs | {"pieces": costs["fill"]}
            terms["loads, scattered"] = model.lines(sim, costs, "bookkeeping", "scatter")
            terms["loads, one chain"] = model.lines(sim, costs, "bookkeeping", "chase", model.OVERLAP_BYTES)
            terms["loads, four chains"] = terms["loads, one chain"] / 4
            for kib in BOUNDS_KIB:
                terms[f"loads up to {kib} KiB"] = model.lines(sim, costs, "bookkeeping", "chase", kib << 10, model.CHAINS)
            terms["loads, any distance"] = model.lines(sim, costs, "bookkeeping", "chase")
            terms["program's lines, all in order"] = model.lines(sim, in_order, "program", "scatter")
            for size in (8 << 10, 1 << 20):
                terms[f"kernel, {size >> 10} KiB before each fault"] = model.kernel(sim, data["profile"]["costs"], size)
            terms["kernel, warm"] = sim["system_time"]["median_s"] * 1e9
            found[name, row["design"]] = {term: ns / sim["calls"] for term, ns in terms.items()}
    return found


def fit(data, terms, names, fitted, fixed):
    """Cycles of each fitted term by least squares of relative errors, none below 0."""
    rows = []
    for name in names:
        recording = data["recordings"][name]
        for row in recording["rows"]:
            found, total = terms[name, row["design"]], errors.ns_of(row)
            rest = total - recording["own_ns"]["low"] - sum(found[term] for term in fixed)
            rows.append(([found[term] / total for term in fitted], rest / total))
    sums = [[sum(x[a] * x[b] for x, _ in rows) for b in range(len(fitted))] for a in range(len(fitted))]
    right = [sum(x[a] * y for x, y in rows) for a in range(len(fitted))]
    if len(fitted) == 1:
        return [max(right[0] / sums[0][0], 0.0)]
    (a, b), (_, d) = sums
    determinant = a * d - b * b
    cycles = [(d * right[0] - b * right[1]) / determinant, (a * right[1] - b * right[0]) / determinant]
    if min(cycles) >= 0:
        return cycles
    # The least squares without negative numbers are those of one term alone.
    return [max(right[0] / a, 0.0), 0.0] if cycles[1] < 0 else [0.0, max(right[1] / d, 0.0)]


def calibrated(data, fitted):
    """Cycles of each fitted term as the profile has them."""
    costs = dict(zip(FITTED, errors.oracle().cycles_of_code(data["profile"], None, None)))
    return [costs[term] for term in fitted]


def print_terms(arguments):
    data, names = read(arguments)
    terms = per_call(data)
    fixed = ["program's lines", "filling", "allocator's loads", "lists", "kernel"]
    variants = {"all terms": (FITTED, fixed)}
    variants |= {f"without {term}": ([left for left in FITTED if left != term], fixed) for term in FITTED}
    variants |= {f"without {term}": (FITTED, [left for left in fixed if left != term]) for term in fixed}
    for term, other in (("allocator's loads", "loads, scattered"), ("allocator's loads", "loads, one chain"),
                        ("allocator's loads", "loads, four chains"), ("allocator's loads", "loads, any distance"),
                        *(("allocator's loads", f"loads up to {kib} KiB") for kib in BOUNDS_KIB),
                        ("program's lines", "program's lines, all in order"), ("kernel", "kernel, 8 KiB before each fault"),
                        ("kernel", "kernel, 1024 KiB before each fault"),
                        ("kernel", "kernel, warm")):
        variants[f"{other} in place of {term}"] = (FITTED, [other if left == term else left for left in fixed])
    print("| Model | Cycles per instruction, per call | Pairs apart: right / wrong | Ratio error, median / p90 "
          "| Level error, median / p90 |")
    print("|---|--:|--:|--:|--:|")
    for name, (fitted, rest) in variants.items():
        cycles = fit(data, terms, names, fitted, rest) if names else calibrated(data, fitted)

        def predicted(recording, row):
            found = terms[recording, row["design"]]
            return sum(a * found[term] for a, term in zip(cycles, fitted)) + sum(found[term] for term in rest)

        held_out = errors.Errors()
        for recording in data["recordings"]:
            if recording not in names:
                held_out.add(errors.Errors.of(data["recordings"][recording], lambda row: predicted(recording, row)))
        shown = [f"{cycles[fitted.index(term)]:.3g}" if term in fitted else "-" for term in FITTED]
        print(errors.line([name, ", ".join(shown), *held_out.summary()]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    measuring = commands.add_parser("measure")
    measuring.add_argument("traces", nargs="+")
    measuring.add_argument("--hksim", default="target/release/hksim")
    measuring.add_argument("--profile", help="a profile of this machine [default: calibrate --thorough]")
    measuring.add_argument("--rounds", type=int, default=9)
    measuring.add_argument("--seed", type=int, default=1)
    measuring.add_argument("--out", required=True)
    measuring.set_defaults(run=measure)
    for name, run in (("evaluate", evaluate), ("terms", print_terms)):
        reading = commands.add_parser(name)
        reading.add_argument("file")
        reading.add_argument("--fit", default="", help="names of recordings")
        reading.set_defaults(run=run)
        if run == evaluate:
            reading.add_argument("--rows", action="store_true", help="print every design")
            reading.add_argument("--csv", help="write every design to this file")
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
