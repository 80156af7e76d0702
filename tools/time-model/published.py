#!/usr/bin/env python3
"""Changes of allocators whose effect on time was published, predicted and then measured.

    cargo build --release -p hksim
    tools/time-model/published.py predict FOLDER
    tools/time-model/published.py measure FOLDER

`predict` makes the traces, and writes the profile of this machine and predictions.json into FOLDER; `measure` times the same
designs by `hksim validate --time` and prints a Markdown table. A ratio is that of times per call, after the change to before it:
a gain of 10 % in operations per second is 0.909. Some eight minutes.
"""

import argparse
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field

import cases
import errors

# A tree of 2^18 nodes is built and freed, over and over, beside one that lives.
TREES = r"""
#include <stdlib.h>
struct node { struct node *left, *right; };
static struct node *grow(int depth) {
    struct node *node = malloc(sizeof *node);
    node->left = depth ? grow(depth - 1) : NULL;
    node->right = depth ? grow(depth - 1) : NULL;
    return node;
}
static void drop(struct node *node) {
    if (!node) return;
    drop(node->left);
    drop(node->right);
    free(node);
}
int main(void) {
    struct node *old = grow(12);
    for (int round = 0; round < 4; round++) drop(grow(17));
    drop(old);
}
"""

HAKMEM = ["--preset", "hakmem", "--startup-touch", "0", "--huge", "never", "--header-bytes", "16"]


@dataclass
class Change:
    """`before` and `after` are values of `axis`. `low` and `high`: the published ratio of times."""
    name: str
    source: str
    trace: str
    axis: str
    before: str
    after: str
    low: float
    high: float
    base: list = field(default_factory=lambda: list(HAKMEM))
    # The ratio is of the calls after this many, which a trace of their own has.
    warm_up: str = ""


CHANGES = [
    Change("`memset` in place of `MAP_POPULATE`", "HAKMEM, report of experiment 1: 4.01 to 3.71 M/s", "small", "prefault", "populate", "memset", 1.081, 1.081),
    Change("`MADV_POPULATE_WRITE` in place of none", "HAKMEM, commit cd3280ee: 4.18 to 4.10 M/s", "small", "prefault", "off", "populate-write", 1.020, 1.020),
    Change("headers written only if they differ", "HAKMEM, report of experiment 6: 42.40 to 38.75 M/s", "mixed", "header", "full", "light", 1.094, 1.094),
    Change("headers written only if corrupt", "HAKMEM, report of experiment 6: 42.40 to 39.33 M/s", "mixed", "header", "full", "off", 1.078, 1.078),
    Change("empty SuperSlabs purged", "HAKMEM, report of experiment 3: 70.4 to 70.8 M cycles", "small", "purge", "none", "dontneed", 1.006, 1.006,
           [*HAKMEM, "--purge-delay", "0"]),
    Change("calls after a warm-up of 100 000", "HAKMEM, report of experiment 4: 3.67 to 4.02 M/s", "warm-0", "warm-up", "none", "100k", 0.913, 0.913, warm_up="warm-100k"),
    Change("front cache of 128 blocks", "HAKMEM, phase 23: 10.22 to 13.78 M/s", "small", "front-cache", "0", "128", 0.742, 0.742),
    Change("larger front cache", "HAKMEM, phase 23: 13.78 to 14.63 M/s (2 048 blocks for two classes); 13.83 when repeated", "small", "front-cache", "128", "255", 0.942, 0.996),
    Change("larger slabs", "gperftools, INSTALL: larger pages, 3 to 5 % faster applications", "redis-server", "slab", "16K", "64K", 0.952, 0.971, ["--purge", "none"]),
    Change("huge pages", "glibc, commit 9097cbf5: hugetlb=1 under always, 4.9 % (xalancbmk)", "cc1plus", "huge", "never", "thp", 0.953, 0.953, ["--purge", "none"]),
    Change("no purge at once", "Chapel, pull request 3926: jemalloc's decay in place of ratio, some 10 % (binary trees)", "trees", "purge", "dontneed", "none", 0.91, 0.91,
           ["--purge-delay", "0"]),
]


def run(hksim, *words):
    ran = subprocess.run([hksim, *words], capture_output=True, check=False, text=True)
    if ran.returncode not in (0, 1):
        sys.exit(f"{' '.join(words)}: {ran.stderr}")
    return ran.stdout


def make_traces(arguments):
    """The files of all traces by name."""
    files = {name: os.path.join(arguments.folder, f"{name}.hkt") for name in ("small", "mixed", "warm-0", "warm-100k", "only-100k", "trees")}
    generate = lambda name, *words: run(arguments.hksim, "gen", "random-mixed", "-q", *words, "-o", files[name])
    generate("small", "--cycles", "1M", "--ws", "256")
    generate("mixed", "--cycles", "1M", "--ws", "400", "--min", "16", "--max", "1024")
    for count in ("0", "100k"):
        generate(f"warm-{count}", "--cycles", "1M", "--ws", "256", "--warmup", count)
    run(arguments.hksim, "trace", "cut", "-q", files["warm-100k"], "--events", "..100k", "-o", files["only-100k"])
    program = os.path.join(arguments.folder, "trees")
    subprocess.run(["cc", "-O1", "-x", "c", "-", "-o", program], input=TREES, text=True, check=True)
    run(arguments.hksim, "record", "-q", "-o", files["trees"], "--", program)
    for name in ("redis-server", "cc1plus"):
        files[name] = cases.on_one_thread(arguments, os.path.join(errors.ROOT, "traces", f"{name}.hkt"), arguments.folder)
    return files


def designs(change):
    """Words of the axis that is changed; none for a warm-up, which changes the trace."""
    return [] if change.warm_up else [f"--{change.axis}={change.before},{change.after}"]


def predicted(arguments, files, change):
    """ns per call before and after the change, and its calls."""
    def rows(trace):
        result = json.loads(run(arguments.hksim, "sweep", files[trace], *change.base, *designs(change), "--profile",
                                arguments.profile, "--format", "json"))
        found = result["rows"]
        for row in found:
            if not row.get("time"):
                sys.exit(f"{change.name}: no time: {row.get('time_skipped')}")
        return [row["time"]["ns_per_call"]["median"] for row in found]

    if not change.warm_up:
        return rows(change.trace)
    return after_warm_up(arguments, files, lambda trace: rows(trace)[0], change)


def after_warm_up(arguments, files, ns_of, change):
    """ns per call without a warm-up, and of the calls after one: all calls minus those of the warm-up."""
    calls = {trace: json.loads(run(arguments.hksim, "sim", files[trace], "--profile", "none", "--format", "json"))["calls"]
             for trace in (change.warm_up, "only-100k")}
    total = lambda trace: ns_of(trace) * calls[trace]
    main = (total(change.warm_up) - total("only-100k")) / (calls[change.warm_up] - calls["only-100k"])
    return [ns_of(change.trace), main]


def measured(arguments, files, change):
    """The ratio, measured: low, median, high; and the verdict on the prediction."""
    def rows(trace):
        result = json.loads(run(arguments.hksim, "validate", "--time", files[trace], *change.base, *designs(change), "--profile",
                                arguments.profile, "--runs", str(arguments.rounds), "--seed", "1", "--format", "json"))
        return result["timed_traces"][0]["rows"]

    if not change.warm_up:
        row = rows(change.trace)[1]
        return row["measured"]["ratio_to_first"], row["verdict"]
    found = {trace: rows(trace)[0]["measured"]["ns_per_call"] for trace in (change.trace, change.warm_up, "only-100k")}
    ratios = {}
    for end in ("low", "median", "high"):
        before, after = after_warm_up(arguments, files, lambda trace, end=end: found[trace][end], change)
        ratios[end] = after / before
    low, median, high = sorted(ratios.values())
    return {"low": low, "median": median, "high": high}, ""


def sign(low, high, tie):
    """-1 for faster, 1 for slower, 0 for a tie."""
    return -1 if high < 1 - tie else 1 if low > 1 + tie else 0


WORDS = {-1: "faster", 0: "tie", 1: "slower"}


def table(arguments, found):
    """Predictions beside measurements. Below the model's own error, or if the interval contains 1, it is a tie."""
    print("| Change | Published | Trace | Published ratio | Predicted | | Measured | |")
    print("|---|---|---|--:|--:|---|--:|---|")
    agree = 0
    for change in CHANGES:
        before, after = found[change.name]["predicted"]
        ratio, times = after / before, found[change.name]["measured"]
        signs = sign(ratio, ratio, arguments.tie), sign(times["low"], times["high"], 0)
        agree += signs[0] == signs[1] or (signs[0] == 0 and abs(times["median"] - 1) < arguments.tie)
        published = f"{change.low:.3f}" if change.low == change.high else f"{change.low:.3f} to {change.high:.3f}"
        print(errors.line([f"{change.name} (`--{change.axis} {change.before}` to `{change.after}`)", change.source, change.trace, published,
                           f"{ratio:.3f}", WORDS[signs[0]], f"{times['median']:.3f} ({times['low']:.3f} to {times['high']:.3f})",
                           WORDS[signs[1]]]))
    print(f"\nSign as measured: {agree} of {len(CHANGES)}; a prediction within {arguments.tie:.0%} of 1 is a tie.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=["predict", "measure"])
    parser.add_argument("folder")
    parser.add_argument("--hksim", default="target/release/hksim")
    parser.add_argument("--profile", help="a profile of this machine [default: calibrate --thorough]")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--tie", type=float, default=0.05, help="the model's own error of a ratio [default: 0.05]")
    arguments = parser.parse_args()
    arguments.folder, arguments.hksim = os.path.abspath(arguments.folder), os.path.abspath(arguments.hksim)
    os.makedirs(arguments.folder, exist_ok=True)
    predictions = os.path.join(arguments.folder, "predictions.json")
    if arguments.step == "predict":
        cases.calibrate(arguments, arguments.folder)
        files = make_traces(arguments)
        found = {change.name: {"predicted": predicted(arguments, files, change)} for change in CHANGES}
        with open(predictions, "w", encoding="utf-8") as file:
            json.dump({"profile": arguments.profile, "files": files, "changes": found}, file, indent=1)
        for change in CHANGES:
            before, after = found[change.name]["predicted"]
            print(f"{change.name}: {before:.1f} to {after:.1f} ns, {after / before:.3f}")
        return
    with open(predictions, encoding="utf-8") as file:
        made = json.load(file)
    arguments.profile, found = made["profile"], made["changes"]
    for change in CHANGES:
        found[change.name]["measured"], found[change.name]["verdict"] = measured(arguments, made["files"], change)
        print(change.name, "measured", file=sys.stderr, flush=True)
    with open(os.path.join(arguments.folder, "measured.json"), "w", encoding="utf-8") as file:
        json.dump(found, file, indent=1)
    table(arguments, found)


if __name__ == "__main__":
    main()
