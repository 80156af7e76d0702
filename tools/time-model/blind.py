#!/usr/bin/env python3
"""Blind predictions of times: what is predicted is drawn by a number, and written before anything is measured.

    cargo build --release -p hksim
    tools/time-model/blind.py NUMBER FOLDER [--recordings 'traces/*.hkt'] [--designs 10] [--rounds 21]

By the number are drawn: four recordings, two generated traces, a rule of touches for each, and designs over all axes that the
model times. FOLDER gets the profile of this machine, predictions.json, and then measured.json. The table that is printed has
the errors. Nothing is fitted, and nothing is left out but designs without a predicted time, which are named.
"""

import argparse
import glob
import json
import os
import random
import subprocess
import sys

import time_model

# The values of each axis. A design differs from the default in one to four axes.
AXES = {
    "superslab": ["256K", "1M", "4M"],
    "slab": ["16K", "256K"],
    "classes": ["linear", "spacing-2", "spacing-8"],
    "header": ["full+header-bytes=16", "light+header-bytes=16", "off+header-bytes=16"],
    "huge": ["never"],
    "prefault": ["populate", "touch", "memset"],
    "purge": ["dontneed+purge-delay=0"],
    "front-cache": ["8", "32", "255"],
    "free-order": ["fifo", "address"],
    "slab-choice": ["newest", "lowest"],
    "carve": ["bump", "eager"],
    "warm-slabs": ["2"],
    "meta": ["sidecar"],
}
TOUCHES = ["all", "all", "first", "none"]
RECORDINGS = 4
GENERATED = 2


def drawn_design(draw):
    axes = draw.sample(sorted(AXES), draw.randint(1, 4))
    return [word for axis in axes for word in f"{axis}={draw.choice(AXES[axis])}".split("+")]


def drawn_trace(draw, hksim, folder, number):
    """The file of a generated trace."""
    slots, least, most = draw.choice([100, 2_000, 40_000]), draw.choice([8, 64]), draw.choice([256, 2_000, 40_000])
    words = draw.choice([
        ["random-mixed", "--cycles", draw.randint(50_000, 300_000), "--ws", slots, "--min", least, "--max", most],
        ["server", "--live", draw.choice(["2M", "16M", "48M"]), "--threads", 1],
    ])
    path = os.path.join(folder, f"{words[0]}-{number}.hkt")
    command = [hksim, "gen", *map(str, words), "--seed", str(draw.randrange(1 << 30)), "-o", path]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", type=int)
    parser.add_argument("folder")
    parser.add_argument("--hksim", default="target/release/hksim")
    parser.add_argument("--profile", help="a profile of this machine [default: calibrate]")
    parser.add_argument("--recordings", default="traces/*.hkt", help="pattern of the recordings to draw from")
    parser.add_argument("--designs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--rows", action="store_true", help="print every design")
    arguments = parser.parse_args()
    arguments.seed = arguments.number
    draw = random.Random(arguments.number)
    os.makedirs(arguments.folder, exist_ok=True)
    time_model.calibrate(arguments, arguments.folder)
    traces = draw.sample(sorted(glob.glob(arguments.recordings)), RECORDINGS)
    traces += [drawn_trace(draw, arguments.hksim, arguments.folder, number) for number in range(GENERATED)]
    cases = []
    for trace in traces:
        touch = draw.choice(TOUCHES)
        designs = [[], *(drawn_design(draw) for _ in range(arguments.designs - 1))]
        rows = time_model.predict(arguments, trace, touch, designs)
        cases.append({"trace": trace, "touch": touch, "rows": rows})
    with open(os.path.join(arguments.folder, "predictions.json"), "w", encoding="utf-8") as file:
        json.dump({"number": arguments.number, "cases": cases}, file, indent=1)
    recordings = {}
    for case in cases:
        for row in case["rows"]:
            if not row["time"]:
                print(f"without a predicted time: {case['trace']} {row['design']}: {row['time_skipped']}")
        rows = [row for row in case["rows"] if row["time"]]
        time_model.add_measured(arguments, case["trace"], case["touch"], rows)
        recordings[f"{time_model.name_of(case['trace'])}, {case['touch']}"] = rows
        print(case["trace"], "measured", file=sys.stderr, flush=True)
    with open(os.path.join(arguments.folder, "measured.json"), "w", encoding="utf-8") as file:
        json.dump({"seed": arguments.seed, "recordings": recordings}, file, indent=1)
    time_model.print_errors(recordings, [], arguments.rows)


if __name__ == "__main__":
    main()
