#!/usr/bin/env python3
"""Which terms of the time model earn their place: predicted and measured times of designs on recordings.

    cargo build --release -p hksim-replay --example replay
    cargo build --release -p hksim-explore --no-default-features --example line_time
    tools/time-terms/time_terms.py --rounds 21 --seed 1 --out terms.json traces/*.hkt
    tools/time-terms/time_terms.py --evaluate terms.json --held-out python-json,redis-server

The first form simulates each design with its cache lines, and times replays of all designs in rounds of random order. The
designs run the same paths of the allocator, so that their instructions take the same time. The second form takes that time
from the first design, predicts the times of the others with and without each term, and prints the errors. Nothing else is
fitted; recordings that are held out are those that were not looked at when the terms were chosen.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tomllib

BASE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "target", "release", "examples")
# Designs that differ in where blocks are and in page operations, not in the instructions of the common calls.
DESIGNS = [
    {"huge": "never"},
    {},
    {"huge": "never", "slab_bytes": 16 << 10},
    {"huge": "never", "slab_bytes": 256 << 10},
    {"huge": "never", "slab_choice": "newest"},
    {"huge": "never", "slab_choice": "lowest"},
    {"huge": "never", "meta": "sidecar"},
    {"huge": "never", "superslab_bytes": 256 << 10},
    {"huge": "never", "prefault": "touch"},
    {"slab_bytes": 16 << 10},
]


def job(trace, design, run):
    spec = {"trace": os.path.abspath(trace), "on": {"native": design}, "touch": "all", "memory_policy": "recorded",
            "mode": "ordered", "measure": {"pages": False, "time": True}, "stop_at": None, "forks": []}
    return json.dumps({"spec": spec, "run": run}).encode()


def replayed(trace, design):
    """Processor seconds of one timed replay."""
    child = subprocess.run([os.path.join(BASE, "replay"), "__replay-child"], input=job(trace, design, "timed"),
                           capture_output=True, check=True)
    timing = json.loads(child.stdout[child.stdout.index(b"{"):])["Timed"]
    return timing["user_s"] + timing["sys_s"]


def measure(arguments):
    choose = random.Random(arguments.seed)
    profile = os.path.splitext(arguments.out)[0] + ".toml"
    designs = [json.dumps(design) for design in DESIGNS]
    traces = {}
    for trace in arguments.traces:
        line_time = [os.path.join(BASE, "line_time"), profile, trace, *designs]
        rows = subprocess.run(line_time, capture_output=True, check=True, text=True).stdout.splitlines()
        rows = [json.loads(row) for row in rows]
        times = [[] for _ in designs]
        for round_number in range(arguments.rounds + 1):
            order = list(range(len(designs)))
            choose.shuffle(order)
            for number in order:
                seconds = replayed(trace, DESIGNS[number])
                if round_number > 0:  # the first one is for warm-up
                    times[number].append(seconds)
        name = os.path.splitext(os.path.basename(trace))[0]
        traces[name] = {"rows": rows, "times": times}
        print(name, "done", file=sys.stderr, flush=True)
    with open(profile, "rb") as file:
        costs = tomllib.load(file)
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump({"seed": arguments.seed, "machine": costs["machine"], "memory": costs["memory"], "traces": traces}, file)


def cost(curve, size):
    """As `CostCurve::at`: interpolated in the logarithm of the size."""
    points = [(point["bytes"], point["cost"]["median_ns"]) for point in curve]
    if size <= points[0][0]:
        return points[0][1]
    for (low, low_ns), (high, high_ns) in zip(points, points[1:]):
        if size <= high:
            share = math.log(size / low) / math.log(high / low)
            return low_ns * (1 - share) + high_ns * share
    return points[-1][1]


def term(row, memory, part, curve):
    """Nanoseconds of a part's lines above the first cache, priced by a curve."""
    total = 0.0
    for line_part, is_huge, size, count in row["lines"]:
        if line_part == part:
            name = curve + "_huge" if is_huge and curve != "fill" and memory[curve + "_huge"] else curve
            total += count * (cost(memory[name], size) - memory[name][0]["cost"]["median_ns"])
    return total


def model(row, memory, terms):
    """Nanoseconds besides those of the instructions."""
    total = 0.0
    for name in terms:
        if name == "kernel":
            total += row["system_time"]["price"]["median_s"] * 1e9 if row["system_time"].get("price") else 0.0
        else:
            part, curve = name.split("/")
            total += term(row, memory, part, curve)
    return total


def errors(data, names, terms):
    ratios, right, wrong = [], 0, 0
    for name in names:
        trace = data["traces"][name]
        measured = [statistics.median(times) for times in trace["times"]]
        own = measured[0] * 1e9 - model(trace["rows"][0], data["memory"], terms)
        predicted = [own + model(row, data["memory"], terms) for row in trace["rows"]]
        quartiles = [statistics.quantiles(times, n=4) for times in trace["times"]]
        for one in range(len(predicted)):
            for other in range(one):
                ratios.append(abs(predicted[one] / predicted[other] / (measured[one] / measured[other]) - 1))
                if quartiles[one][0] > quartiles[other][2] or quartiles[other][0] > quartiles[one][2]:
                    agrees = (predicted[one] > predicted[other]) == (measured[one] > measured[other])
                    right, wrong = right + agrees, wrong + (not agrees)
    ratios.sort()
    return statistics.median(ratios), ratios[int(len(ratios) * 0.9)], right, wrong


def evaluate(arguments):
    with open(arguments.evaluate, encoding="utf-8") as file:
        data = json.load(file)
    held_out = [name for name in arguments.held_out.split(",") if name in data["traces"]]
    fit = [name for name in data["traces"] if name not in held_out]
    sequential, isolated = "program_sequential/fill", "program_isolated/fill"
    filling = ["filling_sequential/fill", "filling_isolated/fill"]
    variants = {
        "none": [],
        "kernel": ["kernel"],
        "kernel, program's sequential lines": ["kernel", sequential],
        "kernel, program's lines": ["kernel", sequential, isolated],
        "... and filling": ["kernel", sequential, isolated, *filling],
        "... isolated ones scattered": ["kernel", sequential, "program_isolated/scatter", *filling],
        "... isolated ones chased": ["kernel", sequential, "program_isolated/chase", *filling],
        "... bookkeeping as fill": ["kernel", sequential, isolated, *filling, "bookkeeping/fill"],
        "... bookkeeping scattered": ["kernel", sequential, isolated, *filling, "bookkeeping/scatter"],
        "... bookkeeping chased": ["kernel", sequential, isolated, *filling, "bookkeeping/chase"],
        "program's lines without kernel": [sequential, isolated],
    }
    print("| terms | error of ratios: median / p90 | pairs right / wrong | held out: median / p90 | pairs right / wrong |")
    print("|---|--:|--:|--:|--:|")
    for name, terms in variants.items():
        cells = []
        for names in (fit, held_out):
            if names:
                median, high, right, wrong = errors(data, names, terms)
                cells += [f"{median:.1%} / {high:.1%}", f"{right} / {wrong}"]
        print(f"| {name} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", default="time-terms.json")
    parser.add_argument("--evaluate")
    parser.add_argument("--held-out", default="")
    arguments = parser.parse_args()
    evaluate(arguments) if arguments.evaluate else measure(arguments)


main()
