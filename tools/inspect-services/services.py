#!/usr/bin/env python3
"""Inspects running services, compares every figure with smaps and pagemap read here, and does what the verdicts promise.

    tools/inspect-services/services.py HKSIM [SERVICE...]

Starts each service (redis, postgres, java, java-thp, go, node, chromium), loads it, stops it by SIGSTOP and inspects it. While it is
stopped it

- compares RSS, huge pages, LazyFree, swap and the regions that the kernel names with smaps, and the pages of each stretch of
  2 MiB ranges with pagemap and kpageflags;
- calls MADV_COLLAPSE on ranges (process_madvise): those that can be collapsed become huge, others are refused;
- writes a zero into empty ranges (/proc/PID/mem), which changes no content: those that are huge "at the next write" become so,
  others do not.

Prints the table of docs/lab/inspect-services.md; a service that is not installed is `skipped: reason`. Needs root. Exits with 1
if something differs. It starts and ends only processes of its own, and changes no setting of the machine.
"""

import ctypes
import errno
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import programs
from memory import HUGE, PAGE, Memory, is_huge

SYS_PIDFD_OPEN, SYS_PROCESS_MADVISE, MADV_COLLAPSE = 434, 440, 25
TRIED_MAX = 40  # ranges of a kind that are tried
LIBC = ctypes.CDLL(None, use_errno=True)


def collapse(pid, address):
    """The error number of MADV_COLLAPSE on a range of another process; 0 if it is huge now."""
    handle = LIBC.syscall(SYS_PIDFD_OPEN, pid, 0)
    vector = struct.pack("QQ", address, HUGE)
    done = LIBC.syscall(SYS_PROCESS_MADVISE, handle, vector, 1, MADV_COLLAPSE, 0)
    number = ctypes.get_errno()
    os.close(handle)
    return 0 if done == HUGE else number


def write_zero(pid, address):
    with open(f"/proc/{pid}/mem", "r+b", buffering=0) as file:
        file.seek(address)
        file.write(b"\0")


def spread(addresses):
    """At most TRIED_MAX of them, evenly."""
    step = max(1, len(addresses) // TRIED_MAX)
    return addresses[::step][:TRIED_MAX]


def ranges_of(inspection, wanted):
    """Addresses of the ranges that `wanted` picks, without those that two mappings share."""
    found, seen = [], {}
    for run in inspection["map"]:
        for number in range(min(run["ranges"], 4096)):
            address = run["address"] + number * HUGE
            seen[address] = seen.get(address, 0) + 1
            if wanted(run):
                found.append(address)
    return [address for address in found if seen[address] == 1]


def differences(inspection, memory):
    """What differs between an inspection and /proc, in words."""
    found = []

    def compare(name, told, read):
        if told != read:
            found.append(f"{name}: {told} instead of {read}")

    for field, key in [("rss_bytes", "Rss"), ("huge_bytes", "AnonHugePages"), ("lazy_free_bytes", "LazyFree"), ("swap_bytes", "Swap")]:
        compare(field, inspection[field], memory.total(key))
        compare(f"{field} of all regions", sum(region[field] for region in inspection["regions"]), memory.total(key))
    for region in inspection["regions"]:
        name = region["name"]
        # A file can be mapped privately and shared, and a named file can be a shared mapping.
        kernel_name = {"heap": "[heap]", "stack": "[stack]"}.get(name) or (name[5:] if name.startswith("file ") else None)
        if kernel_name:
            compare(name, region["rss_bytes"], memory.total("Rss", kernel_name))
        hindered = sum(obstacle["bytes"] for obstacle in region["obstacles"])
        compare(f"obstacles of {name}", hindered + region["huge_bytes"], region["rss_bytes"])
    for start, end, told in stretches(inspection["map"]):
        compare(f"small pages in {start:x}-{end:x}", told // PAGE, memory.written_pages(start, end))
    return found


def stretches(runs):
    """Runs that follow each other, as (start, end, bytes in small pages)."""
    joined = []
    for run in runs:
        start, end = run["address"], run["address"] + run["ranges"] * HUGE
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]), joined[-1][2] + run["small_bytes"])
        else:
            joined.append((start, end, run["small_bytes"]))
    return joined


def tried(pid, inspection):
    """Does what the verdicts promise: for each kind the number of ranges, and of those that did as promised."""
    def is_empty(run):
        return run["small_bytes"] == 0 and run["way"] != "is_huge"

    def cannot_be_written(run):
        return (run.get("obstacle") or {}) == {"place": "not_writable"} or run["way"] == "is_huge"

    outcomes = {}
    collapsible = spread(ranges_of(inspection, lambda run: run["way"] in ("khugepaged", "collapse_call")))
    outcomes["collapsed"] = (len(collapsible), sum(collapse(pid, at) == 0 and is_huge(pid, at) for at in collapsible))
    others = spread(ranges_of(inspection, lambda run: run["way"] == "none" and run["small_bytes"] > 0))
    refused = [collapse(pid, at) for at in others]
    outcomes["not collapsed"] = (len(others), sum(number in (errno.EINVAL, errno.ENOMEM) for number in refused))
    writes = spread(ranges_of(inspection, lambda run: run["way"] == "next_fault"))
    for at in writes:
        write_zero(pid, at)
    outcomes["huge by a write"] = (len(writes), sum(is_huge(pid, at) for at in writes))
    empty = spread(ranges_of(inspection, lambda run: run["way"] == "none" and is_empty(run) and not cannot_be_written(run)))
    for at in empty:
        write_zero(pid, at)
    outcomes["small by a write"] = (len(empty), sum(not is_huge(pid, at) for at in empty))
    return outcomes


def inspected(hksim, pid):
    begin = time.monotonic()
    ran = subprocess.run([hksim, "inspect", str(pid), "--format", "json"], capture_output=True, text=True)
    if ran.returncode != 0:
        raise SystemExit(ran.stderr)
    return json.loads(ran.stdout), time.monotonic() - begin


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    while any(state(pid, task) not in "TtZX" for task in os.listdir(f"/proc/{pid}/task")):
        time.sleep(0.01)


def state(pid, task):
    try:
        return Path(f"/proc/{pid}/task/{task}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return "X"


def mebibytes(number):
    return f"{number / (1 << 20):.1f}"


def check(hksim, name, service):
    """The row of a service, and what differs."""
    pid = service.pid
    stop(pid)
    try:
        inspection, seconds = inspected(hksim, pid)
        wrong = differences(inspection, Memory(pid))
        outcomes = tried(pid, inspection)
    finally:
        os.kill(pid, signal.SIGCONT)
    if not service.answers():
        wrong.append("the service does not answer afterwards")
    wrong += [f"{kind}: {done} of {number}" for kind, (number, done) in outcomes.items() if number != done]
    names = [region["name"] for region in inspection["regions"] if not region["name"].startswith("file ")][:2]
    cells = [
        name, inspection["threads"], mebibytes(inspection["rss_bytes"]), mebibytes(inspection["huge_bytes"]),
        mebibytes(inspection["lazy_free_bytes"]), ", ".join(names), "equal" if not wrong else "DIFFER",
        *[f"{done} of {number}" for number, done in outcomes.values()], f"{seconds * 1000:.0f} ms",
    ]
    return cells, wrong


def main():
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    if os.geteuid() != 0:
        raise SystemExit("skipped: reading page frames and another process's memory needs root")
    hksim, wanted = os.path.abspath(sys.argv[1]), sys.argv[2:] or list(programs.ALL)
    print(f"Linux {os.uname().release}, THP mode {Path('/sys/kernel/mm/transparent_hugepage/enabled').read_text().strip()}\n")
    print("| Service | Threads | RSS | huge | LazyFree | Largest regions | Figures | Collapsed | Not collapsed | Huge by a write | Small by a write | Time |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    failed = []
    for name in wanted:
        with tempfile.TemporaryDirectory(prefix="hksim-services-") as folder:
            try:
                service = programs.ALL[name](Path(folder))
            except programs.Missing as why:
                print(f"| {name} | skipped: {why} |", flush=True)
                continue
            try:
                cells, wrong = check(hksim, name, service)
                print("| " + " | ".join(map(str, cells)) + " |", flush=True)
                failed += [f"{name}: {what}" for what in wrong]
            finally:
                service.end()
    if failed:
        print("\n" + "\n".join(failed))
    sys.exit(1 if failed else 0)


main()
