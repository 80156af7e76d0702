#!/usr/bin/env python3
"""The time of a design, computed again from the counts of a result: time.py SIM.json PROFILE.toml paths.tsv CYCLES CYCLES_PER_CALL.

Prints the nanoseconds per call of instructions, memory and kernel. Shares no code with hksim: it follows the reference page
of results and docs/lab/time-model.md.
"""

import json
import math
import sys
import tomllib

LINE_BYTES = 64


def instructions(sim, table):
    is_constant = all(
        sim["policy"][name] == value
        for name, value in {
            "superslab_bytes": 2 << 20, "slab_bytes": 64 << 10, "classes": "default", "header": "none", "meta": "inband",
            "front_cache": 0, "free_order": "lifo",
        }.items()
    )
    total = 0.0
    for line in table:
        if not line.startswith("#"):
            name, constant, configured = line.rstrip("\n").split("\t")
            total += sim["paths"].get(name, 0) * float(constant if is_constant else configured)
    return total


def cost(curve, size):
    points = [(point["bytes"], point["cost"]["median_ns"]) for point in curve]
    if size <= points[0][0]:
        return points[0][1]
    for (low, low_ns), (high, high_ns) in zip(points, points[1:]):
        if size <= high:
            share = math.log(size / low) / math.log(high / low)
            return low_ns * (1 - share) + high_ns * share
    return points[-1][1]


def less(more, fewer):
    """Misses are estimates: a larger cache may have more."""
    return {pattern: max(more[pattern] - fewer.get(pattern, 0), 0) for pattern in more}


def reuses(lines, sizes):
    """(is huge, bytes between two accesses, accesses by pattern) of one accessor."""
    misses = lines["misses"]
    both = {pattern: misses[0]["small_pages"][pattern] + misses[0]["huge_pages"][pattern] for pattern in lines["accesses"]}
    yield False, sizes[0] // 2 * LINE_BYTES, less(lines["accesses"], both)
    for number, missed in enumerate(misses):
        is_last = number + 1 == len(misses)
        after = sizes[number] if is_last else sizes[number + 1]
        between = math.floor(math.sqrt(sizes[number] * after)) * LINE_BYTES
        for pages in ["small_pages", "huge_pages"]:
            fewer = {} if is_last else misses[number + 1][pages]
            yield pages == "huge_pages", between, less(missed[pages], fewer)


def memory(sim, costs):
    total = 0.0
    for lines in sim["lines"]["accessors"]:
        if lines["accessor"] == "kernel":
            continue
        for is_huge, size, accesses in reuses(lines, sim["lines"]["cache_lines"]):
            scatter = costs["scatter_huge"] if is_huge and costs["scatter_huge"] else costs["scatter"]
            for pattern, count in accesses.items():
                is_filled = pattern == "sequential" and lines["accessor"] != "bookkeeping"
                curve = costs["fill"] if is_filled else scatter
                first = 0.0 if lines["accessor"] == "program" else cost(curve, 0)
                total += count * max(cost(curve, size) - first, 0.0)
    return total


def main():
    sim_file, profile_file, table_file, cycles, per_call = sys.argv[1:]
    with open(sim_file, encoding="utf-8") as file:
        sim = json.load(file)
    with open(profile_file, "rb") as file:
        costs = tomllib.load(file)["memory"]
    with open(table_file, encoding="utf-8") as file:
        cycle_ns = costs["cycle"]["median_ns"]
        processor = instructions(sim, file) * float(cycles) + sim["calls"] * float(per_call)
        parts = [processor * cycle_ns, memory(sim, costs), sim["system_time"]["median_s"] * 1e9]
    print(*(part / sim["calls"] for part in parts))


main()
