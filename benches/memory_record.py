#!/usr/bin/env python3
"""What `hksim record --memory` costs a program, by tracepoints (root) and by stops (other users).

    cargo build --release -p hksim-memory-record --example record_pages && benches/memory_record.py [ROUNDS]

Run as root. Each round runs the bare program and the ways of recording one after another; figures are medians over the
rounds, with quartiles: run time relative to the bare run of the same round, and the additional ns per event.
"""

import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOADS = {"faults": 131072, "threads": 131072, "calls": 40000, "other calls": 500000}
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all"]


def quartiles(values):
    values = sorted(values)
    middle = statistics.median(values)
    return middle, values[len(values) // 4], values[3 * len(values) // 4]


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    folder = pathlib.Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    load = folder / "load"
    subprocess.run(["cc", "-O1", "-pthread", "-o", load, ROOT / "benches/memory_record/load.c"], check=True)
    recorder = shutil.copy(ROOT / "target/release/examples/record_pages", folder)
    ways = {
        "bare": [],
        "tracepoints": [recorder, "--tracepoints", folder / "t.hkm"],
        "stops, root": [recorder, "--stops", folder / "s.hkm"],
        "stops, user": NOBODY + [recorder, "--stops", folder / "u.hkm"],
    }
    print(f"{'load':12} {'way':12} {'ratio':>22} {'ns per event':>28}  runs with lost events")
    for name, events in LOADS.items():
        seconds = {way: [] for way in ways}
        lossy = dict.fromkeys(ways, 0)
        for _ in range(rounds):
            for way, prefix in ways.items():
                said = subprocess.run(prefix + [load, name[0], str(events)], capture_output=True, text=True, check=True)
                seconds[way].append(float(re.search(r"^seconds (.*)$", said.stderr, re.M)[1]))
                lost = re.search(r"(\d+) events lost", said.stderr)
                lossy[way] += bool(lost and int(lost[1]))
        bare = seconds["bare"]
        print(f"{name:12} {'bare':12} {'':22} {statistics.median(bare) / events * 1e9:12.0f}")
        for way in list(ways)[1:]:
            ratio = quartiles([mine / base for mine, base in zip(seconds[way], bare)])
            extra = quartiles([(mine - base) / events * 1e9 for mine, base in zip(seconds[way], bare)])
            print(f"{'':12} {way:12} {ratio[0]:8.2f} [{ratio[1]:.2f}, {ratio[2]:.2f}]"
                  f" {extra[0]:12.0f} [{extra[1]:.0f}, {extra[2]:.0f}]  {lossy[way]}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
