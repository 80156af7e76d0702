#!/usr/bin/env python3
"""Prints the table of docs/lab/preset-default.md. Run benches/preset_default.py HKSIM in the repository's root."""

import glob
import json
import os
import subprocess
import sys
import tempfile

# Constants and their values. The first value is the preset's; one row shows the preset for all constants.
CONSTANTS = [
    ("slab", "64K,32K,128K"), ("superslab", "2M,1M,4M"), ("cache", "4,0,1,16"), ("purge-delay", "100ms,0,10ms,1s"),
    ("huge-cache", "64M,0,16M,256M"), ("warm-slabs", "0,2"), ("carve", "page,bump,eager"), ("classes", "default,linear,hakmem"),
]  # fmt: skip


def sweep(hksim, traces, flag, values, rule, path):
    words = [*traces, f"--{flag}", values, "--memory-policy", rule]
    subprocess.run([hksim, "sweep", *words, "--format", "json", "-o", path], check=True)
    with open(path, encoding="utf-8") as file:
        rows = json.load(file)["rows"]
    os.remove(path)
    return rows


def installs(rows):
    return str(sum(row["installs"]["total"] for row in rows))


def main():
    hksim, traces = sys.argv[1], sorted(glob.glob("traces/*.hkt"))
    print("| Constant | Value | Installs | Installs, huge pages for all | RSS peak, MiB | RSS end, MiB | OS calls |")
    print("|---|---|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sweep.json")
        for flag, values in CONSTANTS:
            both = lambda rule: [row for part in (traces, []) for row in sweep(hksim, part, flag, values, rule, path)]
            rows, ignored = both("recorded"), both("ignored")
            words = values.split(",")
            for at, word in enumerate(words):
                if at == 0 and flag != CONSTANTS[0][0]:
                    continue
                # The rows of a trace are adjacent, with one row for each value.
                own = rows[at :: len(words)]
                total = lambda field: sum(row[field] for row in own)
                calls = sum(sum(row["os_calls"][name] for name in ("mmap", "munmap", "madvise", "mremap")) for row in own)
                cells = [
                    "as in the preset" if at == 0 else flag, "" if at == 0 else word,
                    installs(own), installs(ignored[at :: len(words)]), f"{total('rss_bytes_peak') / 2**20:.1f}",
                    f"{total('rss_bytes_end') / 2**20:.1f}", str(calls),
                ]  # fmt: skip
                print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
