"""Checks the module hksim: check.py PROGRAM, the path of the program that it must find. Prints the number of checks.

Figures are compared with those that the readers of this package count, and with the JSON of the program.
"""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import hksim

CHECKS = []


def check(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found!r}, expected {expected!r}")
    CHECKS.append(what)


def raises(kind, call):
    try:
        call()
    except kind as why:
        return str(why)
    sys.exit(f"no {kind.__name__}")


def live_bytes_peak(events):
    """The highest bytes of live objects, counted event by event."""
    sizes, live, peak = {}, 0, 0
    for event, number, size in zip(events["event"], events["object"], events["size"]):
        if event in ("alloc", "realloc", "realloc_unknown"):
            live += size - sizes.get(number, 0)
            sizes[number] = size
            peak = max(peak, live)
        elif event in ("free", "realloc_free"):
            live -= sizes.pop(number)
    return peak


def check_recorded():
    """A program is recorded: the shared objects inside the program of the wheel work."""
    subprocess.run([hksim.program(), "record", "-q", "-o", "app.hkt", "--", "sh", "-c", "true"], check=True)
    events = hksim.read_hkt("app.hkt")
    info = hksim.run("info", "app.hkt")
    check("events of a recording", len(events), info["events"])
    named = Counter(events["event"])
    check("frees of a recording", named["free"], info["frees"])
    check("live bytes", live_bytes_peak(events), info["live_bytes_peak"])
    check("columns", list(events.columns[:6]), ["time_ns", "thread", "event", "object", "size", "site"])


def check_results():
    subprocess.run([hksim.program(), "gen", "random-mixed", "-q", "--cycles", "5k", "-o", "rm.hkt"], check=True)
    sweep = hksim.sweep("rm.hkt", huge=["never", "thp"], superslab="1M,2M")
    rows = hksim.run("sweep", "rm.hkt", huge="never,thp", superslab=["1M", "2M"])["rows"]
    check("rows of a sweep", len(sweep), 4)
    for column, value in [
        ("installs_total", lambda row: row["installs"]["total"]),
        ("rss_bytes_peak", lambda row: row["rss_bytes_peak"]),
        ("policy_huge", lambda row: row["policy"]["huge"]),
        ("policy_superslab_bytes", lambda row: row["policy"]["superslab_bytes"]),
    ]:
        check(column, list(sweep[column]), [value(row) for row in rows])
    one = hksim.sim("rm.hkt", huge="never", superslab="2M")
    alike = sweep[(sweep["policy_huge"] == "never") & (sweep["policy_superslab_bytes"] == 2 << 20)]
    check("a simulation", list(one["installs_total"]), list(alike["installs_total"]))
    check("live bytes of a simulation", list(one["live_bytes_peak"]), [live_bytes_peak(hksim.read_hkt("rm.hkt"))])


def check_errors():
    check("a refused file", "none.hkt" in raises(hksim.HksimError, lambda: hksim.sim("none.hkt")), True)
    check("an unknown flag", "--no-such" in raises(hksim.HksimError, lambda: hksim.sim("rm.hkt", no_such=1)), True)
    sys.modules["pandas"] = None
    why = raises(ImportError, lambda: hksim.sim("rm.hkt"))
    del sys.modules["pandas"]
    check("without pandas", "pip install 'hksim[pandas]'" in why, True)


def main():
    check("the program", os.path.realpath(hksim.program()), os.path.realpath(sys.argv[1]))
    data = Path(__file__).parents[2] / "crates/cli/tests/data/page-operations.hkm"
    mapped = hksim.read_hkm(data)
    check("events of a memory recording", (mapped["event"] == "map").any(), True)
    check("ranges of pages", bool((mapped["pages_end"] >= mapped["pages_first"]).fillna(True).all()), True)
    with TemporaryDirectory() as folder:
        os.chdir(folder)
        check_recorded()
        check_results()
        check_errors()
        os.chdir("/")
    print(f"{len(CHECKS)} checks of the module hksim")


if __name__ == "__main__":
    main()
