#!/usr/bin/env python3
"""Blind predictions of times: what is predicted is drawn by a number, and written before anything is measured.

    cargo build --release -p hksim
    tools/time-model/blind.py NUMBER FOLDER

By the number are drawn: three recordings of traces/, two generated traces, a program that is recorded now, a rule of touches
for each, and designs over all axes that the model times. FOLDER gets the profile of this machine, predictions.json, and then
measured.json and rows.csv. The table that is printed has the errors. Nothing is fitted, and nothing is left out but designs without a
predicted time, which are named. A number takes some six minutes.
"""

import argparse
import glob
import json
import os
import random
import shutil
import subprocess
import sys

import cases
import errors

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
RECORDINGS = 3
GENERATED = 2
# Programs that most machines have, and that call malloc often. The recording is new each time.
PROGRAMS = {
    "perl": ["-e", 'my %h; for my $i (1..150000) { $h{$i % 4999} .= "x" x ($i % 97); delete $h{$i % 1777} }'],
    "bash": ["-c", "for i in {1..20000}; do a[i % 500]=$RANDOM$i; s=${a[i % 77]}.$i; done"],
    "python3": ["-c", "import ast, inspect, argparse, typing; [ast.parse(inspect.getsource(m)) for m in [argparse, typing] * 3]"],
    "git": ["log", "--stat", "-n", "150"],
}


def drawn_design(draw):
    axes = draw.sample(sorted(AXES), draw.randint(1, 4))
    return [word for axis in axes for word in f"{axis}={draw.choice(AXES[axis])}".split("+")]


def generated(draw, hksim, folder, number):
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


def recorded(draw, hksim, folder):
    """The file of a recording that is made now."""
    program = draw.choice([name for name in sorted(PROGRAMS) if shutil.which(name)])
    path = os.path.join(folder, f"new-{program}.hkt")
    command = [hksim, "record", "-q", "-o", path, "--", program, *PROGRAMS[program]]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=errors.ROOT)
    return path


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("number", type=int)
    parser.add_argument("folder")
    parser.add_argument("--hksim", default="target/release/hksim")
    parser.add_argument("--profile", help="a profile of this machine [default: calibrate --thorough]")
    parser.add_argument("--recordings", default=os.path.join(errors.ROOT, "traces", "*.hkt"),
                        help="pattern of the recordings to draw from [default: traces/*.hkt]")
    parser.add_argument("--designs", type=int, default=14)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--rows", action="store_true", help="print every design")
    arguments = parser.parse_args()
    arguments.seed = arguments.number
    arguments.folder, arguments.hksim = os.path.abspath(arguments.folder), os.path.abspath(arguments.hksim)
    draw = random.Random(arguments.number)
    os.makedirs(arguments.folder, exist_ok=True)
    profile = cases.calibrate(arguments, arguments.folder)
    traces = draw.sample(sorted(glob.glob(arguments.recordings)), RECORDINGS)
    traces += [generated(draw, arguments.hksim, arguments.folder, number) for number in range(GENERATED)]
    traces.append(recorded(draw, arguments.hksim, arguments.folder))
    drawn = []
    for trace in traces:
        touch = draw.choice(TOUCHES)
        designs = [[], *(drawn_design(draw) for _ in range(arguments.designs - 1))]
        one = cases.on_one_thread(arguments, trace, arguments.folder)
        rows = cases.predict(arguments, one, touch, designs)
        drawn.append({"name": f"{cases.name_of(trace)}, {touch}", "trace": one, "touch": touch, "rows": rows})
    with open(os.path.join(arguments.folder, "predictions.json"), "w", encoding="utf-8") as file:
        json.dump({"number": arguments.number, "cases": drawn}, file)
    recordings = {}
    for case in drawn:
        for row in case["rows"]:
            if not row["sim"]["time"]:
                print(f"without a predicted time: {case['name']} {row['design']}: {row['time_skipped']}")
        rows = [row for row in case["rows"] if row["sim"]["time"]]
        recordings[case["name"]] = cases.measured(arguments, case["trace"], case["touch"], rows)
        print(case["name"], "measured", file=sys.stderr, flush=True)
    with open(os.path.join(arguments.folder, "measured.json"), "w", encoding="utf-8") as file:
        json.dump({"seed": arguments.seed, "profile": profile, "recordings": recordings}, file)
    errors.write_rows(os.path.join(arguments.folder, "rows.csv"), recordings)
    errors.print_table(recordings, is_by_row=arguments.rows)


if __name__ == "__main__":
    main()
