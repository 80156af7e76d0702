#!/usr/bin/env python3
"""The time of a design, computed again from the counts of a result: time.py SIM.json PROFILE.toml paths.tsv CYCLES CYCLES_PER_CALL.

Prints the nanoseconds per call of instructions, memory and kernel. Shares no code with hksim: it follows the reference page
of results and docs/lab/time-model.md. tools/time-model takes the terms from here.
"""

import json
import math
import sys
import tomllib

LINE_BYTES = 64
MIB = 1 << 20
# A dependent load through more memory overlaps with the next calls.
OVERLAP_BYTES = 256 << 10
# Chains of such loads at a time.
CHAINS = 2
LIST_STEPS = ["block-counted", "block-reversed", "block-merged", "block-collected"]


def instructions(sim, table):
    """The number of instructions; `table` has the lines of paths.tsv."""
    is_constant = all(
        sim["policy"][name] == value
        for name, value in {
            "superslab_bytes": 2 << 20, "slab_bytes": 64 << 10, "classes": "default", "header": "none", "meta": "inband",
            "front_cache": 0, "carve": "page",
        }.items()
    )
    total = 0.0
    for line in table:
        if not line.startswith("#"):
            name, constant, configured = line.rstrip("\n").split("\t")
            total += sim["paths"].get(name, 0) * float(constant if is_constant else configured)
    return total


def on_scale(points, size):
    """The cost at a size on a logarithmic scale; outside the points (size, ns), that of the nearest one."""
    if size <= points[0][0]:
        return points[0][1]
    for (low, low_ns), (high, high_ns) in zip(points, points[1:]):
        if size <= high:
            share = math.log(size / low) / math.log(high / low)
            return low_ns * (1 - share) + high_ns * share
    return points[-1][1]


def cost(curve, size):
    return on_scale([(point["bytes"], point["cost"]["median_ns"]) for point in curve], size)


def timed(costs, operation):
    """Nanoseconds of an operation in kernel and user mode."""
    return costs[operation]["median_ns"] / costs[operation]["kernel_share"]


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


def lines(sim, costs, accessor, isolated, bytes_max=math.inf, chains=1):
    """Nanoseconds of an accessor's lines: sequential ones by `fill`, those of short runs by `pieces`, isolated ones by the curve
    of this name."""
    total = 0.0
    for counted in sim["lines"]["accessors"]:
        if counted["accessor"] != accessor:
            continue
        for is_huge, size, accesses in reuses(counted, sim["lines"]["cache_lines"]):
            huge = costs[isolated + "_huge"]
            alone = huge if is_huge and huge else costs[isolated]
            short = costs["fill" if accessor == "bookkeeping" else "pieces"]
            curves = {"sequential": costs["fill"], "short": short, "isolated": alone}
            for pattern, count in accesses.items():
                curve, between = curves[pattern], min(size, bytes_max) if pattern == "isolated" else size
                in_code = cost(curve, 0) if accessor == "bookkeeping" else 0.0
                waits = chains if pattern == "isolated" else 1
                total += count * max(cost(curve, between) - in_code, 0.0) / waits
    return total


def lists(sim, costs):
    """Nanoseconds of steps along lists of blocks."""
    return sum(sim["paths"].get(path, 0) for path in LIST_STEPS) * cost(costs["chase"], 0)


def footprint(costs, kind, size):
    """The cost of a first touch while so much memory passes through the caches."""
    points = [(mib * MIB, timed(costs, kind + suffix))
              for mib, suffix in [(4, ""), (8, "_8m"), (16, "_16m"), (32, "_32m"), (128, "_128m")]]
    return on_scale(points, size)


def installs_again(refaults, kind):
    # The middle of each range: from 0 to 8 MiB, and from there on to double its start.
    return [(part["returned_bytes_min"] * 3 // 2 or 4 * MIB, part["installs"]) for part in refaults[kind]]


# Bytes of other work before a fault that is timed.
BETWEEN = [(MIB // 128, "_8k"), (MIB // 32, "_32k"), (MIB // 8, "_128k"), (MIB // 4, "_256k"), (MIB // 2, "_512k"), (MIB, "")]


def between_faults(lines):
    """Bytes accessed between two faults, and the number of faults."""
    left, below = lines["faults"]["faults"], lines["cache_lines"][0] / 4
    for size, missed in zip(lines["cache_lines"], lines["faults"]["misses"]):
        yield math.floor(math.sqrt(below * size)) * LINE_BYTES, left - min(left, missed)
        left, below = min(left, missed), size
    yield below * LINE_BYTES, left


def after_work(costs, size):
    """The cost of a fault after accesses to so many other bytes."""
    return on_scale([(between, timed(costs, "write_fault_apart" + end)) for between, end in BETWEEN], size)


def kernel(sim, costs, other_work=None):
    """Nanoseconds of faults and calls in a program, in kernel and user mode, from memory that no cache holds. `other_work` is what
    is accessed between two faults of different events, if not what was counted."""
    ns = lambda operation: timed(costs, operation)
    done, kinds = sim["page_operations"], sim["installs"]["by_kind"]
    unknown = [kinds["mthp"], kinds["hugetlb"], done["collapsed_pmds"], done["forks"], done["mremap_pages"]]
    assert not any(unknown), unknown
    by_hand = sim["installs"]["by_reason"]["prefault"] if sim["policy"]["prefault"] == "touch" else 0
    spacing = {part["events_min"]: part["installs"] for part in done["fault_spacing"]}
    touched = max(sum(spacing.values()), 1)
    filling = max(spacing.get(0, 0) - by_hand, 0) / touched
    counted = list(between_faults(sim["lines"]))
    later = sum(number for _, number in counted) / touched
    if other_work is not None:
        counted = [(other_work, later * touched)]
    apart_ns = sum(number * after_work(costs, size) for size, number in counted) / touched
    rest = 1 - filling - later

    def small(size, number, operation, near=0.0):
        """Single pages with a fault each."""
        farther = footprint(costs, "write_fault", size) - ns("write_fault")
        first = ns(operation) + near * (ns("refault_near") - ns("refault"))
        return number * (filling * ns("memset_untouched") + apart_ns + rest * first + farther)

    def populated(size, number):
        return number * (ns("populate_write") + footprint(costs, "write_fault", size) - ns("write_fault"))

    def nearness(size):
        return (2 - math.log2(min(max(size, MIB // 4), 4 * MIB) / MIB)) / 4

    # Between 8 192 and 131 072 events, a huge page is more and more often far from the one before.
    gaps = [(part["events_min"], part["installs"]) for part in done["huge_fault_spacing"]]
    position = lambda events, near, far: min(math.log2(max(events, near) / near) // 1 / math.log2(far / near), 1.0)
    huge_touches = max(sum(number for _, number in gaps), 1)
    far = sum(number * position(events, 8192, 131072) for events, number in gaps) / huge_touches
    huge_apart = max(sum(number * position(events, 256, 8192) for events, number in gaps) / huge_touches - far, 0)

    def huge(size, number):
        farther = footprint(costs, "huge_fault", max(size, 32 * MIB))
        near = footprint(costs, "huge_fault", size)
        return number * (far * ns("huge_fault_far") + huge_apart * farther + (1 - far - huge_apart) * near)

    cold, refaults, total = 128 * MIB, done["refaults"], 0.0
    again = {kind: installs_again(refaults, kind) for kind in refaults}
    returned = {kind: sum(number for _, number in parts) for kind, parts in again.items()}
    total += small(cold, kinds["base_4k"] - done["populated_pages"] - returned["base_4k"], "write_fault")
    total += populated(cold, done["populated_pages"] - returned["base_4k_populated"])
    total += huge(cold, kinds["thp"] - returned["thp"])
    total += sum(small(size, number, "refault", nearness(size)) for size, number in again["base_4k"])
    total += sum(huge(size, number) for size, number in again["thp"])
    for size, number in again["base_4k_populated"]:
        total += populated(size, number) + number * nearness(size) * (ns("refault_near") - ns("refault"))
    dropped = done["madv_dontneed_folio_pages"] + done["unmapped_folio_pages"]
    for operation, number in {
        "zero_read_fault": kinds["zero"],
        "write_after_zero": kinds["cow"],
        "page_table": done["page_tables_allocated"],
        "dontneed_page": done["madv_dontneed_pages"] - done["madv_dontneed_folio_pages"],
        "dontneed_huge": done["madv_dontneed_huge_pages"],
        "free_page": done["madv_free_pages"] - done["madv_free_repeated_pages"],
        "free_page_again": done["madv_free_repeated_pages"],
        "rewrite_freed": done["clean_entries_written"],
        "free_huge": done["madv_free_huge_pages"] - done["madv_free_repeated_huge_pages"],
        "free_huge_again": done["madv_free_repeated_huge_pages"],
        "flush_page": done["flushed_pages"],
        "drop_call": done["dropping_calls"],
        "munmap_page": done["unmapped_pages"] - done["unmapped_folio_pages"],
        "munmap_huge": done["unmapped_huge_pages"],
        "drop_folio_page": dropped,
        "split_huge": sim["pmd_splits"],
        "mmap_call": sim["os_calls"]["mmap"],
        "munmap_call": sim["os_calls"]["munmap"],
        "madvise_call": sim["os_calls"]["madvise"],
        "mremap_call": sim["os_calls"]["mremap"],
    }.items():
        if number:
            total += number * ns(operation)
    return total


def terms(sim, profile, table):
    """The terms that no fit changes, in nanoseconds of the whole run, by their names; instructions and calls in cycles of
    the processor, as if each took one."""
    costs, cycle_ns = profile["memory"], profile["memory"]["cycle"]["median_ns"]
    return {
        "instructions": instructions(sim, table) * cycle_ns,
        "calls": sim["calls"] * cycle_ns,
        "program's lines": lines(sim, costs, "program", "scatter"),
        "filling": lines(sim, costs, "filling", "scatter"),
        "allocator's loads": lines(sim, costs, "bookkeeping", "chase", OVERLAP_BYTES, CHAINS),
        "lists": lists(sim, costs),
        "kernel": kernel(sim, profile["costs"]),
    }


def cycles_of_code(profile, cycles, cycles_per_call):
    """Cycles of an instruction and of a call: what the profile measured, or else these."""
    if "code" not in profile:
        return cycles, cycles_per_call
    cycle_ns = profile["memory"]["cycle"]["median_ns"]
    return [profile["code"][part]["median_ns"] / cycle_ns for part in ("instruction", "call")]


def parts(found, cycles, cycles_per_call):
    """Instructions, memory and kernel, of these terms."""
    memory = found["program's lines"] + found["filling"] + found["allocator's loads"] + found["lists"]
    return [found["instructions"] * cycles + found["calls"] * cycles_per_call, memory, found["kernel"]]


def main():
    sim_file, profile_file, table_file, cycles, per_call = sys.argv[1:]
    with open(sim_file, encoding="utf-8") as file:
        sim = json.load(file)
    with open(profile_file, "rb") as file:
        profile = tomllib.load(file)
    with open(table_file, encoding="utf-8") as file:
        found = terms(sim, profile, file)
    in_cycles = cycles_of_code(profile, float(cycles), float(per_call))
    print(*(part / sim["calls"] for part in parts(found, *in_cycles)))


if __name__ == "__main__":
    main()
