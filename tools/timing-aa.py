#!/usr/bin/env python3
"""Draws A/A pairs: how often the interval of `hksim compare` contains 1 for an allocator compared with itself.

    tools/timing-aa.py HKSIM DRAWS TRACE... [-- FLAGS OF COMPARE]

Each draw is a whole comparison of `glibc,glibc` with a seed of its own, from its first round to its stop rule. It gives
two ratios that are 1: that of the second row, and that of the second run of the first row. A budget may end before there are
enough rounds for an interval; such draws are counted apart. Prints a Markdown table.
"""

import json
import statistics
import subprocess
import sys


def draw(hksim, trace, seed, flags):
    words = [hksim, "compare", trace, "--allocators", "glibc,glibc", "--format", "json", "--seed", str(seed), *flags]
    return json.loads(subprocess.run(words, check=True, capture_output=True).stdout)


def main():
    own, _, flags = [list(part) for part in split(sys.argv[1:])]
    hksim, draws, traces = own[0], int(own[1]), own[2:]
    print("| Trace | Draws | Without interval | A/A row contains 1 | Second row contains 1 | Verdict tie | Half interval, median | Rounds, median | Ended |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|---|")
    for trace in traces:
        drawn = [draw(hksim, trace, seed, flags) for seed in range(draws)]
        name = trace.rsplit("/", 1)[-1].removesuffix(".hkt")
        found = [result for result in drawn if has_intervals(result)]
        if not found:
            print(f"| {name} | {draws} | {draws} | | | | | | no draw has enough rounds: give a longer --budget |", flush=True)
            continue
        again = [result["timing"]["same_again"] for result in found]
        second = [result["rows"][1]["ratio_to_first"] for result in found]
        contain = lambda ratios: sum(ratio["low"] <= 1 <= ratio["high"] for ratio in ratios)
        ties = sum(result["rows"][1]["verdict"] == "tie" for result in found)
        half = statistics.median((ratio["high"] - ratio["low"]) / 2 for ratio in again)
        rounds = statistics.median(result["runs"] for result in found)
        ends = sorted({result["timing"]["ended"] for result in found})
        ended = ", ".join(f"{end} {sum(result['timing']['ended'] == end for result in found)}" for end in ends)
        print(f"| {name} | {draws} | {draws - len(found)} | {contain(again)} | {contain(second)} | {ties} | {100 * half:.2f} % | {rounds:.0f} | {ended} |", flush=True)


def has_intervals(result):
    return all(ratio["low"] is not None for ratio in (result["timing"]["same_again"], result["rows"][1]["ratio_to_first"]))


def split(words):
    at = words.index("--") if "--" in words else len(words)
    return words[:at], words[at:at + 1], words[at + 1:]


main()
