#!/usr/bin/env python3
"""Measures the instructions of each path of the preloadable allocator, and checks their sums.

    tools/path-costs/path_costs.py measure [--pairs 60] [--seed 1] [--jobs 2]
    tools/path-costs/path_costs.py check [--recordings NAME,...] [--designs NAME,...] [--jobs 2]

`measure` replays random traces under random designs, and three recordings under a list of designs. It fits the costs of
all paths to the windows of these runs, for both variants of the allocator: that with constant sizes and that with
configured ones. It writes the table crates/time-model/src/paths.tsv, and prints the errors on random pairs that were
held out. A run of a recording has the weight of 900 windows. `check` predicts the instructions of
recordings under these designs and compares them with callgrind's counts: a Markdown table. Exits with status 1 if an
error is above `--limit`.

Needs valgrind, and the programs path_costs and, for `measure`, hksim: `cargo build -p hksim-time-model --examples -p hksim`. The
allocator is the object that these programs contain and `hksim run` preloads.
"""

import argparse
import concurrent.futures
import pathlib
import random
import tempfile

from fit import non_negative
from measure import ROOT, Tools, imported
from programs import Program, random_design, write_csv

TABLE = ROOT / "crates/time-model/src/paths.tsv"
VARIANTS = ["constant", "configured"]
EVENTS, WINDOW, WHOLE = 8_000, 250, 1 << 40
HELD_OUT = 5  # every so many pairs
LIBRARY_WORK = ("byte-filled", "byte-copied")
CALIBRATING = ["sqlite-memory", "postgres-backend", "mariadbd"]
CALIBRATING_WEIGHT = 900
RECORDINGS = ["sqlite-memory", "postgres-backend", "mariadbd", "git-pack-objects", "python-json"]
DESIGNS = {
    "default": "",
    "huge never + purge at once": "huge=never purge-delay=0ns",
    "prefault populate-write": "prefault=populate-write",
    "free order address": "free-order=address",
    "slab choice fullest + warm 2": "slab-choice=fullest warm-slabs=2",
    "superslab 1M": "superslab=1M",
    "superslab 4M + slab 16K": "superslab=4M slab=16K",
    "classes linear": "classes=linear",
    "header full": "header=full header-bytes=16",
    "header light": "header=light header-bytes=16",
    "header off + carve eager": "header=off header-bytes=16 carve=eager",
    "front cache 8": "front-cache=8",
    "front cache 32 + sidecar": "front-cache=32 meta=sidecar",
}


def words(design):
    return " ".join(f"{name}={value}" for name, value in design.items())


def pair(tools, options, variant, seed):
    """One random trace under one random design, measured."""
    draw = random.Random(f"{variant} {seed}")
    with tempfile.TemporaryDirectory(prefix="hksim-path-costs-") as folder:
        table, trace = pathlib.Path(folder) / "trace.csv", pathlib.Path(folder) / "trace.hkt"
        write_csv(Program(draw).run(EVENTS), table)
        imported(options.hksim, table, trace)
        design = words(random_design(draw, variant == "constant"))
        return tools.measured(trace, design, "none", WINDOW)


def whole(tools, recording, design):
    """A recording under a design of the list, measured in one window."""
    # Headers that are read may be those that the program overwrote.
    touch = "all" if "header=light" in design or "header=off" in design else "none"
    return tools.measured(ROOT / "traces" / f"{recording}.hkt", design, touch, WHOLE)


def error(costs, rows):
    """The relative error of the sum of a run's windows."""
    predicted = sum(cost * count for counts, _ in rows for cost, count in zip(costs, counts))
    return predicted / sum(total for _, total in rows) - 1


def without_library_work(names, rows):
    """Bytes that the C library writes are no instructions of the object."""
    ignored = [names.index(name) for name in LIBRARY_WORK]
    return [([0 if at in ignored else count for at, count in enumerate(counts)], total) for counts, total in rows]


def fitted(tools, options, variant):
    """Names of paths and their costs, from the pairs of a variant."""
    seeds = range(options.seed, options.seed + options.pairs)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        measured = list(pool.map(lambda seed: pair(tools, options, variant, seed), seeds))
        own = [design for design in DESIGNS.values() if is_constant(design) == (variant == "constant")]
        cells = [(recording, design) for recording in CALIBRATING for design in own]
        recorded = list(pool.map(lambda cell: whole(tools, *cell), cells))
    names = measured[0][0]
    runs = [without_library_work(names, rows) for _, rows in measured]
    recordings = [
        (*row, CALIBRATING_WEIGHT) for _, rows in recorded for row in without_library_work(names, rows)
    ]
    known = [(*row, 1) for number, rows in enumerate(runs) if number % HELD_OUT for row in rows]
    costs = non_negative(known + recordings)
    errors = sorted(abs(error(costs, rows)) for number, rows in enumerate(runs) if number % HELD_OUT == 0)
    print(f"{variant}: {len(known)} windows; held-out pairs: median error {errors[len(errors) // 2]:.2%}, largest {errors[-1]:.2%}")
    return names, non_negative([(*row, 1) for rows in runs for row in rows] + recordings)


def measure(tools, options):
    print(f"seeds {options.seed} to {options.seed + options.pairs - 1} of each variant", flush=True)
    found = [fitted(tools, options, variant) for variant in VARIANTS]
    names = found[0][0]
    rows = zip(names, *(costs for _, costs in found))
    lines = [f"# {tools.compiler()}", "# path, instructions with constant sizes and with configured ones; from tools/path-costs"]
    lines += [f"{name}\t{constant:.2f}\t{configured:.2f}" for name, constant, configured in rows]
    TABLE.write_text("\n".join(lines) + "\n", encoding="ascii")
    print(f"wrote {TABLE}")


def table_costs():
    """Costs of each variant from the table."""
    lines = [line.split("\t") for line in TABLE.read_text(encoding="ascii").splitlines() if not line.startswith("#")]
    return {variant: {line[0]: float(line[1 + at]) for line in lines} for at, variant in enumerate(VARIANTS)}


def is_constant(design):
    """Whether the object has compiled-in sizes for a design of the list."""
    configures = ("superslab", "slab", "classes", "header", "front-cache", "meta", "carve")
    return not any(word.split("=")[0] in configures for word in design.split())


def checked(tools, costs, recording, design):
    """The relative error of a prediction."""
    names, rows = whole(tools, recording, design)
    own = costs["constant" if is_constant(design) else "configured"]
    return error([own[name] for name in names], rows)


def check(tools, options):
    costs = table_costs()
    recordings, designs = options.recordings.split(","), options.designs.split(",")
    cells = [(design, recording) for design in designs for recording in recordings]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        errors = list(pool.map(lambda cell: checked(tools, costs, cell[1], DESIGNS[cell[0]]), cells))
    found = dict(zip(cells, errors))
    print(f"| Design | {' | '.join(recordings)} |\n|---|{'--:|' * len(recordings)}")
    for design in designs:
        print(f"| {design} | {' | '.join(f'{found[design, recording]:+.2%}' for recording in recordings)} |")
    largest = max(map(abs, errors))
    print(f"\nlargest error {largest:.2%}")
    raise SystemExit(1 if largest > options.limit else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=["measure", "check"])
    parser.add_argument("--program", default=ROOT / "target/debug/examples/path_costs")
    parser.add_argument("--hksim", default=ROOT / "target/debug/hksim")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--recordings", default=",".join(RECORDINGS))
    parser.add_argument("--designs", default=",".join(DESIGNS))
    parser.add_argument("--limit", type=float, default=0.01)
    options = parser.parse_args()
    tools = Tools(options.program)
    measure(tools, options) if options.work == "measure" else check(tools, options)


if __name__ == "__main__":
    main()
